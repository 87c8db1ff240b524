# SPDX-License-Identifier: GPL-2.0

"""Prints how many different numbers come to port 4001 within argument 2 seconds, once argument 1 of them have come or the
time is over."""

import socket
import sys
import time

wanted, limit = int(sys.argv[1]), float(sys.argv[2])
listener = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
listener.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)
listener.bind(("::", 4001))
print("listening", flush=True)
seen = {listener.recv(64)}
begin = time.monotonic()
while len(seen) < wanted and (left := begin + limit - time.monotonic()) > 0:
    listener.settimeout(left)
    try:
        seen.add(listener.recv(64))
    except TimeoutError:
        break
print(f"came {len(seen)} in {time.monotonic() - begin:.2f} s")
