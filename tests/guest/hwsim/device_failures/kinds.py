# SPDX-License-Identifier: GPL-2.0

# Prints the kinds (linux/if_packet.h) of the ARP packets that come to ib0 until a second passes without any.

import socket
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0806))
packets.bind(("ib0", 0x0806))
print("ready", flush=True)
packets.settimeout(10)
try:
    while True:
        print(packets.recvfrom(100)[1][2], flush=True)
        packets.settimeout(1)
except socket.timeout:
    pass
