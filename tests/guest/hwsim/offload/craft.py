# SPDX-License-Identifier: GPL-2.0

# Hands frames to ib0, for the host whose hardware address argument 1 is, of which much is left to be done: super-frames
# of TCP that are to be segmented, and datagrams of UDP whose checksum is to be made. Each is the same whenever this runs.

import socket, struct, sys

PSH, FIN, ACK = 8, 1, 16
target = bytes.fromhex(sys.argv[1].replace(":", ""))
sockets = {}
for kind in (0x0800, 0x86dd):
    sockets[kind] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind))
    sockets[kind].bind(("ib0", kind))
    sockets[kind].setsockopt(263, 15, 1)  # PACKET_VNET_HDR

def add(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return total

addresses = {4: bytes([10, 1, 0, 201, 10, 1, 0, 202]),
             6: socket.inet_pton(socket.AF_INET6, "2001:db8::1") + socket.inet_pton(socket.AF_INET6, "2001:db8::2")}

def send(version, protocol, transport, payload, mss=0, options=b"", id=1):
    at = 16 if protocol == 6 else 6
    length = len(transport) + len(payload)
    pseudo = add(addresses[version] + struct.pack("!HH", protocol, length))
    transport = transport[:at] + struct.pack("!H", pseudo) + transport[at + 2:]
    if version == 4:
        words = 5 + len(options) // 4
        ip = struct.pack("!BBHHHBBH", 0x40 | words, 3, words * 4 + length, id, 0x4000, 64, protocol, 0)
        ip += addresses[4] + options
        ip = ip[:10] + struct.pack("!H", ~add(ip) & 0xffff) + ip[12:]
    else:
        ip = struct.pack("!IHBB", 0x60123456, length, protocol, 64) + addresses[6]
    kind = 0x0800 if version == 4 else 0x86dd
    link = target + struct.pack("!HH", kind, 0)
    front = len(link) + len(ip)
    gso = 0 if mss == 0 else 1 if version == 4 else 4
    head = struct.pack("=BBHHHH", 1, gso, front + len(transport), mss, front, at)
    sockets[kind].send(head + link + ip + transport + payload)

def tcp(sequence, flags, options=b""):
    head = struct.pack("!HHIIBBHHH", 7777, 7778, sequence, 9, (5 + len(options) // 4) << 4, flags, 77, 0, 0)
    return head + options

def udp(length):
    return struct.pack("!HHHH", 7777, 7778, 8 + length, 0)

data = bytes(i * 7 % 251 for i in range(65000))
stamps = struct.pack("!BBBBII", 1, 1, 8, 10, 1234, 5678)
for version in (4, 6):
    # More segments than one, a last one that is short or not, sequence numbers and identifications that wrap.
    send(version, 6, tcp(0xfffff000, ACK | PSH | FIN, stamps), data[:20000], 1400, id=0xfffe)
    send(version, 6, tcp(5, ACK | PSH), data[:4200], 1400, id=0x1234)
    send(version, 6, tcp(6, ACK), data[:60001], 1000, id=7)
    send(version, 6, tcp(7, ACK, b"\1" * 40), data[:1001], 100, id=8)
    # Not to be segmented.
    send(version, 6, tcp(8, ACK, stamps), data[:1000])
    for length in (0, 1, 1400, 1401):
        send(version, 17, udp(length), data[:length])
    # A checksum of 0 goes as 0xffff.
    for last in range(0x10000):
        payload = data[:10] + struct.pack("!H", last)
        if add(addresses[version] + struct.pack("!HH", 17, 20) + udp(12) + payload) == 0xffff:
            send(version, 17, udp(12), payload)
            break
    else:
        raise SystemExit("no such datagram")
# All options of IP and TCP at once: no headers are longer.
send(4, 6, tcp(9, ACK | PSH, b"\1" * 40), data[:3000], 500, b"\1" * 40, id=9)
send(4, 17, struct.pack("!HHHH", 7777, 7779, 8, 0), b"")
