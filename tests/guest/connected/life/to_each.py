# SPDX-License-Identifier: GPL-2.0
# Sends an empty datagram to each of the hosts 10.1.0.FIRST to 10.1.0.END, less the last; again and again with a pause.
import socket
import sys
import time

FIRST, END, *PAUSE = sys.argv[1:]
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("ready", flush=True)
while True:
    for n in range(int(FIRST), int(END)):
        sock.sendto(b"", (f"10.1.0.{n}", 4000))
    if not PAUSE:
        break
    time.sleep(float(PAUSE[0]))
