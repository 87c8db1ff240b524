# SPDX-License-Identifier: GPL-2.0

# Sends datagrams to a host, its first argument, from sixteen sockets: one second from one of them, which is the
# second argument, then from all, for two seconds or as many as the third argument says.
# If it is ended before, it says how many.

import socket, sys, time
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(16)]
for n, s in enumerate(sockets):
    s.bind(("", 4100 + n))
sent = 0
def send(sockets, seconds):
    global sent
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for s in sockets:
            s.sendto(b"x", (sys.argv[1], 4000))
            sent += 1
        time.sleep(0.02)
first = int(sys.argv[2])
try:
    send(sockets[first:first + 1], 1)
    send(sockets, float(sys.argv[3]) if len(sys.argv) > 3 else 2)
except KeyboardInterrupt:
    print(sent, "datagrams sent")
