# SPDX-License-Identifier: GPL-2.0
# Prints the first datagram that comes to port 4000.
import socket

sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("", 4000))
print("ready", flush=True)
print(sock.recv(100), flush=True)
