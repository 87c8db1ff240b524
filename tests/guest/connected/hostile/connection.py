# SPDX-License-Identifier: GPL-2.0

# Asks for a connection as one of ours does, and confirms it; acknowledges whatever comes by it, and sends again what did not
# get through. The third argument is its name.

import select, time
me = socket.inet_pton(socket.AF_INET6, sys.argv[3])
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86dd))
tap.bind(("eth0", 0x86dd))

def receive(wait):
    end = time.monotonic() + wait
    while select.select([tap], [], [], max(0, end - time.monotonic()))[0]:
        data = tap.recv(65536)
        if data[20] == 17 and data[38:54] == me and data[56:58] == struct.pack("!H", 4791):
            opcode, _, _, _, number = struct.unpack_from("!BBHII", data, 62)
            return opcode, number & 0xffffff, data[74:-4]
    return None, 0, b""

def management(attribute, data):
    head = struct.pack("!BBBBHHQHHI", 1, 7, 2, 3, 0, 0, count, attribute, 0, 0)
    send(head + data + bytes(232 - len(data)), source=me, source_qpn=1, to_qpn=1, key=0x80010000)

request(private(qpn=0x777), sender=me)
while True:
    opcode, _, body = receive(10)
    if opcode is None:
        sys.exit("no answer")
    # Behind DETH and the header of the datagram: REP, or REJ.
    if opcode == 0x64 and body[24:26] == b"\0\x13":
        break
    if opcode == 0x64 and body[24:26] == b"\0\x12":
        sys.exit("refused")
answer = body[32:]
other_id, = struct.unpack_from("!I", answer)
other_qpn = struct.unpack_from("!I", answer, 12)[0] >> 8
# With which its receiver wants to begin (section 12.7.31).
number = struct.unpack_from("!I", answer, 20)[0] >> 8
magic, window = struct.unpack_from("!8x4s2xH", answer, 36)
assert magic == b"iprs", answer
management(0x14, struct.pack("!II", count, other_id))
acknowledged = 0

def acknowledge(wait):
    global acknowledged, number
    while True:
        opcode, at, body = receive(wait)
        if opcode is None:
            return
        # Not ready, or something is missing.
        if opcode == 0x11 and body[0] >> 5 in (1, 3):
            number = at
        elif opcode < 6:
            acknowledged += 1
            aeth = struct.pack("!I", 0x1f << 24 | acknowledged)
            s.send(packet(0x11, other_qpn, at, aeth, b"", gid, me))

def post(message):
    global number
    s.send(packet(0x04, other_qpn, number, b"", message, gid, me, ask=True))
    number = (number + 1) & 0xffffff

ip = struct.pack("!BBHHHBBH", 0x45, 0, 28, 1, 0, 64, 253, 0) + socket.inet_aton("10.1.0.99") + socket.inet_aton("10.1.0.2")
good = struct.pack("!HH", 0x0800, 0) + ip + bytes(8)
