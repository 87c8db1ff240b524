# SPDX-License-Identifier: GPL-2.0

# Requests again and again, as the victim would ask, and as others at its address would, more than there
# is room for. The third argument: how many seconds to wait after every four.

import time
print("ready", flush=True)
while True:
    for lane in range(8):
        request(private())
        request(private(lane=lane))
        request(private(qpn=1000 + lane))
        request(private(qpn=1000 + lane, extension=False))
        time.sleep(float(sys.argv[3]))
