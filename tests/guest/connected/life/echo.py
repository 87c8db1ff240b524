# SPDX-License-Identifier: GPL-2.0

# Answers datagrams.

import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5011))
print("ready", flush=True)
while True:
    s.sendto(*s.recvfrom(2048))
