# SPDX-License-Identifier: GPL-2.0

# Prints of each UDP datagram that comes to port 4001 whether the device has found its checksum right, and of each
# that the socket gets its text.

import select, socket, struct
raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
raw.bind(("ib0", 0x0800))
raw.setsockopt(263, 8, 1)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("", 4001))
print("watching")
while True:
    for s in select.select([raw, udp], [], [])[0]:
        if s is udp:
            text = udp.recv(4096).decode()
            print("got", text)
            continue
        packet, aux, _, address = raw.recvmsg(4096, 1024)
        if packet[9] != 17 or packet[22:24] != (4001).to_bytes(2, "big") or address[2] == 4:
            continue
        status = struct.unpack("I", aux[0][2][:4])[0]
        text = packet[28:].decode()
        print("checked" if status & 0x80 else "unchecked", text, flush=True)
