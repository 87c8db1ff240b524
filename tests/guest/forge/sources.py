# SPDX-License-Identifier: GPL-2.0

# Numbered frames, each from a source of its own and with something that is no packet in it. Two
# arguments: how many, and how many a second; 0 for as many as go.

import time
count, rate = int(sys.argv[1]), float(sys.argv[2])
prefix = socket.inet_pton(socket.AF_INET6, "fe80::")[:8]
frames = [
    frame(struct.pack("!HH", 0x0800, 1 + n % 65535) + b"\0" * 20, source=prefix + os.urandom(8), source_qpn=2 + n)
    for n in range(count)
]
print("ready", flush=True)
start = time.monotonic()
for n, ready in enumerate(frames):
    if rate and n % 16 == 0:
        wait = start + n / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
    s.send(ready)
print("done", flush=True)
