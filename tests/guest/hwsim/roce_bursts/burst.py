# SPDX-License-Identifier: GPL-2.0

# Hands frames to ib0. Arguments, of which addresses are without colons: the address of a first frame; that of one that is
# sent at once behind it, and of some more, how many; and the address of a last one.

import socket, struct, sys, time

first, peer, last = (bytes.fromhex(sys.argv[n]) for n in (1, 2, 4))
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
packets.bind(("ib0", 0x0800))

def send(address):
    packets.send(address + struct.pack("!HH", 0x0800, 0) + bytes(100))

if first != peer:
    send(first)
for _ in range(1 + int(sys.argv[3])):
    send(peer)
send(last)
