# SPDX-License-Identifier: GPL-2.0

# Reads the capture of the first argument. Prints how many packets of each kind there are, and checks their lengths,
# their order in time and what never changes.

import collections, struct, sys, time
data = open(sys.argv[1], "rb").read()
magic, major, minor, zone, digits, snap, link = struct.unpack("<IHHiIII", data[:24])
assert (magic, major, minor, zone, digits, link) == (0xa1b23c4d, 2, 4, 0, 0, 197), data[:24]
seen, at, last = collections.Counter(), 24, 0
EXTENDED = {0x03: 4, 0x05: 4, 0x06: 16, 0x0a: 16, 0x09: 4, 0x0b: 20, 0x0c: 16, 0x0d: 4, 0x0f: 4, 0x10: 4, 0x11: 4,
            0x12: 12, 0x13: 28, 0x14: 28, 0x16: 4, 0x17: 4, 0x64: 8, 0x65: 12}
while at < len(data):
    seconds, ns, kept, length = struct.unpack("<IIII", data[at:at + 16])
    fraction, whole, kind, flags, record, _, wire = struct.unpack("<II", data[at + 16:at + 24]) + struct.unpack(
        "!BBHHH", data[at + 24:at + 32])
    packet = data[at + 32:at + 16 + kept]
    at += 16 + kept
    assert kept == length == record == len(packet) + 16 <= snap and ns < 10**9, (kept, length, ns)
    assert (kind, flags, wire, whole) == (21, 4, len(packet), seconds), (kind, flags, wire, whole)
    assert abs(fraction * 10**9 / 2**32 - ns) < 2, (fraction, ns)
    length = wire
    # Both directions are noted as they pass, each of them in order.
    now = seconds * 10**9 + ns
    assert abs(now - time.time_ns()) < 3600 * 10**9, now
    lane, sl, dlid, words, slid = packet[0] >> 4, packet[1] >> 4, *struct.unpack("!HHH", packet[2:8])
    assert packet[0] & 15 == 0 and packet[1] & 15 in (2, 3) and words * 4 + 2 == length, packet[:8]
    end = 8
    if packet[1] & 3 == 3:
        assert packet[8] >> 4 == 6 and packet[14] == 0x1b, packet[8:48]
        assert struct.unpack("!H", packet[12:14])[0] == words * 4 - 48, packet[8:48]
        end = 48
    opcode, flags, pkey, qp, psn = struct.unpack("!BBHII", packet[end:end + 12])
    assert flags & 15 == 0 and pkey == 0xffff, packet[end:end + 12]
    payload = packet[end + 12 + EXTENDED.get(opcode, 0):len(packet) - 6 - (flags >> 4 & 3)]
    seen["all"] += 1
    if lane == 15:
        assert opcode == 0x64 and qp == 0 and len(payload) == 256 and payload[0] == 1, packet
        seen["smp"] += 1
    elif opcode == 0x64 and qp & 0xffffff > 1:
        qkey, source = struct.unpack("!II", packet[end + 12:end + 20])
        assert qkey == 0xb1b and source > 1, hex(qkey)
        ip = payload[4:]
        if payload[:2] == b"\x08\x00" and ip[9] == 1:
            seen["echo" if ip[20] == 8 else "reply"] += 1
            assert struct.unpack("!H", ip[2:4])[0] == len(ip), ip
    elif opcode < 0x18:
        seen["rc"] += 1
        seen["ack" if opcode == 0x11 else "send"] += 1
for name, number in seen.items():
    print(name, number)
