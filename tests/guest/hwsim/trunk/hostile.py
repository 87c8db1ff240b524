# SPDX-License-Identifier: GPL-2.0

# Sends what nobody should, by the device of the first argument: frames that are none, frames of third parties,
# and, in the name of the end at that device, packets that are none. Prints how many.

import os, random, socket, struct, sys
random.seed(7)
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88b5))
s.bind((sys.argv[1], 0))
own = s.getsockname()[4]
ether = lambda source: b"\xff" * 6 + source + b"\x88\xb5"

# The session that the other end has now is in its hellos.
while True:
    frame, address = s.recvfrom(5000)
    if address[2] != socket.PACKET_OUTGOING and len(frame) >= 34 and frame[15] == 1:
        theirs, heard = struct.unpack("!I", frame[18:22])[0], struct.unpack("!I", frame[30:34])[0]
        seen, = struct.unpack("!I", frame[26:30])
        if heard:
            break

def header(kind, session, version=1, sent=seen):
    return struct.pack("!BBHIII", version, kind, 0, session, sent, 0)

def packet(opcode=0x64, length=None, lane=0, next=2, tver=0, pad=0, body=bytes(8 + 256), dlid=1, qp=1):
    bth = struct.pack("!BBHII", opcode, 0x40 | pad << 4 | tver, 0xffff, qp, 0)
    words = (8 + 12 + len(body) + 4) // 4 if length is None else length
    return struct.pack("!BBHHH", lane << 4, next, dlid, words, 5) + bth + body + bytes(6)

third = b"\x02\x00\x00\x00\x00\x99"
sent = dict(bad_frame=0, malformed=0, stranger=0, third_party=0)
def send(what, frame, source=own):
    s.send(ether(source) + frame)
    sent[what] += 1

for frame in (b"", b"\x01", header(1, 5), header(2, 5, version=2), header(2, 5, version=0), header(3, 5),
              header(0, 5), header(2, 0), header(1, 5) + struct.pack("!IBBBBB", 0, 1, 3, 7, 9, 4) + bytes(3)):
    send("bad_frame", frame)
send("third_party", header(1, 77) + struct.pack("!IBBBBB", 0, 1, 3, 7, 5, 4) + bytes(3), third)
send("stranger", header(2, 77) + packet(), third)
send("stranger", header(2, heard ^ 1) + packet())
for bad in (packet(opcode=0x18), packet(opcode=0x81), packet(length=0x7ff), packet(length=1), packet(lane=15, opcode=4),
            packet(next=0), packet(next=1), packet(next=3), packet(tver=3), packet(pad=1, body=bytes(8)),
            packet(opcode=0x0c, body=bytes(20)), packet(opcode=0x11, body=b"\x40" + bytes(3)),
            packet() + bytes(100), packet()[:50], b"", b"\xff" * 8):
    send("malformed", header(2, heard) + bad)
# Well-formed ones to whatever there may be, and random bytes behind a good header.
for _ in range(300):
    opcode = random.choice((*range(0x15), 0x16, 0x17, 0x64, 0x65))
    body = os.urandom(random.choice((28, 64, 264, 280)))
    s.send(ether(own) + header(2, heard) + packet(opcode, lane=random.choice((0, 15)), body=body,
        dlid=random.choice((1, 2, 3, 0xc000, 0xffff)), qp=random.choice((0, 1, 2, 0x40, 0xffffff))))
    s.send(ether(own) + header(random.choice((1, 2)), heard) + os.urandom(random.randrange(0, 400)))
for name, number in sent.items():
    print(name, number)
