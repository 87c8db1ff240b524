# SPDX-License-Identifier: GPL-2.0

# Prints the frames from port 7777 that ib0 receives, byte for byte, until one to port 7779 comes.

import socket
raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
raw.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)  # SO_RCVBUFFORCE
raw.bind(("ib0", 3))
print("recording", flush=True)
while True:
    packet, address = raw.recvfrom(1 << 17)
    if address[2] == 4:
        continue
    at = (packet[0] & 15) * 4 if packet[0] >> 4 == 4 else 40
    protocol = packet[9] if packet[0] >> 4 == 4 else packet[6]
    if protocol not in (6, 17) or packet[at:at + 2] != (7777).to_bytes(2, "big"):
        continue
    if packet[at + 2:at + 4] == (7779).to_bytes(2, "big"):
        break
    print(packet.hex())
print("end", flush=True)
