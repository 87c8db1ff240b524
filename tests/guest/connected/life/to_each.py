# SPDX-License-Identifier: GPL-2.0
# Sends an empty datagram to each of the hosts 10.1.0.FIRST to 10.1.0.END, less the last; again and again with a pause.
# When it is ended, it says how many.
import socket
import sys
import time

FIRST, END, *PAUSE = sys.argv[1:]
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sent = 0
print("ready", flush=True)
try:
    while True:
        for n in range(int(FIRST), int(END)):
            sock.sendto(b"", (f"10.1.0.{n}", 4000))
            sent += 1
        if not PAUSE:
            break
        time.sleep(float(PAUSE[0]))
except KeyboardInterrupt:
    print(sent, "datagrams sent")
