# SPDX-License-Identifier: GPL-2.0

# Sends packets by a packet socket that has the kernel make the link-layer header: 10,000 bytes of an IPv4 packet that may
# be cut up, of one that may not, and of nothing, in turn. Argument: the link-layer address, which is longer than Python
# allows. Prints the error numbers that sending each ended with.

import ctypes, os, socket, struct, sys
address = bytes.fromhex(sys.argv[1].replace(":", ""))
libc = ctypes.CDLL(None, use_errno=True)
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
to = struct.pack("=HHiHBB", socket.AF_PACKET, socket.htons(0x0800), socket.if_nametoindex("ib0"), 32, 0, len(address)) + address

def send(packet):
    sent = libc.sendto(s.fileno(), packet, len(packet), 0, to, len(to))
    return 0 if sent == len(packet) else ctypes.get_errno()

def ipv4(length, flags):
    return struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 1, flags, 64, 17, 0, bytes([10, 1, 0, 1]), b"\xff" * 4) + bytes(length - 20)

kinds = {"fragmentable": ipv4(10000, 0), "unfragmentable": ipv4(10000, 0x4000), "empty": bytes(10000), "small": ipv4(100, 0)}
errors = {name: set() for name in kinds}
for _ in range(100):
    for name, packet in kinds.items():
        errors[name].add(send(packet))
for name in kinds:
    print(name, *sorted(errors[name]))
