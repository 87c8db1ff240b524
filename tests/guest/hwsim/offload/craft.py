# SPDX-License-Identifier: GPL-2.0

# Hands frames to ib0, for the host whose hardware address argument 1 is, of which much is left to be done: super-frames
# of TCP that are to be segmented, and datagrams of UDP whose checksum is to be made. Comes before a program that sends some.

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

def end():
    """The receiver ends with this one."""
    send(4, 17, struct.pack("!HHHH", 7777, 7779, 8, 0), b"")
