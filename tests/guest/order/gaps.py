# SPDX-License-Identifier: GPL-2.0

# Sends a hundred datagrams in order, and then each odd number nineteen numbers late, for two and a half minutes, so
# that the receiver always holds some. Arguments: source and target address.

import time
source, to = (socket.inet_aton(a) for a in sys.argv[1:3])

def numbered(n):
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20, 1, 0, 64, 17, 0) + source + to
    send(struct.pack("!HH", 0x0800, n) + ip, source_qpn=0x4711)

for n in range(1, 101):
    numbered(n)
    time.sleep(0.001)
for n in range(102, 65535, 2):
    numbered(n)
    if n > 120:
        numbered(n - 19)
    time.sleep(0.005)
