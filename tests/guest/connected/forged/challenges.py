# SPDX-License-Identifier: GPL-2.0

# Sends challenges, each with a number of its own, from whoever is named. Arguments: GID and QPN of the source, the RC queue
# pair that they are about, and how many. Follows forge.py.

import time
source, source_qpn, pair, count = socket.inet_pton(socket.AF_INET6, sys.argv[1]), *(int(word, 0) for word in sys.argv[2:5])
for number in range(1, count + 1):
    send(struct.pack("!HHIQ", 0x0106, 0, pair, number), source=source, source_qpn=source_qpn)
    time.sleep(0.005)
