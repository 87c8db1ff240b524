# SPDX-License-Identifier: GPL-2.0

# Sends a stream to the first argument, so many MiB and for so many seconds at least; prints its
# length and digest when all of it was taken.

import hashlib, os, socket, sys, time
target, mib, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
s = socket.create_connection((target, 5010))
print("connected", flush=True)
# No two pieces are the same.
rest = os.urandom((1 << 16) - 8)
length, digest, start = 0, hashlib.sha256(), time.monotonic()
while length < mib << 20 or time.monotonic() < start + seconds:
    data = length.to_bytes(8, "big") + rest
    s.sendall(data)
    digest.update(data)
    length += len(data)
s.shutdown(socket.SHUT_WR)
s.recv(1)
print(length, digest.hexdigest())
