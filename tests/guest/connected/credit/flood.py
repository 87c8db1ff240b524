# SPDX-License-Identifier: GPL-2.0

# Sends datagrams from several sockets as fast as they take them, each for some seconds. Arguments: to whom, how
# many sockets, seconds, bytes of each. Prints how many.

import os, socket, sys, time
target, sockets, seconds, size = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
read, write = os.pipe()
for n in range(sockets):
    if os.fork() == 0:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.connect((target, 4100 + n))
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            try:
                s.send(b"x" * size)
                count += 1
            except OSError:
                pass
        os.write(write, b"%d\n" % count)
        os._exit(0)
for n in range(sockets):
    os.wait()
os.close(write)
print(sum(int(line) for line in os.read(read, 65536).split()))
