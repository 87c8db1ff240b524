# SPDX-License-Identifier: GPL-2.0

# Prints, for each packet that comes to ib0 with as many bytes as argument 1 says, whom it is for (linux/if_packet.h), until
# there are as many as argument 2 says.

import socket, sys

size, count = int(sys.argv[1]), int(sys.argv[2])
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
packets.bind(("ib0", 0x0800))
packets.settimeout(20)
print("ready", flush=True)
while count:
    packet, address = packets.recvfrom(65536)
    if len(packet) == size and address[2] != 4:
        print(address[2], flush=True)
        count -= 1
