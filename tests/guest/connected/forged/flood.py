# SPDX-License-Identifier: GPL-2.0

# All of them good, in the name of the victim and of the forger itself, of one interface and of many, as
# one of ours and as another driver.

import time
for n in range(200):
    request(private(lane=n % 8))
    request(private(extension=False))
    request(private(qpn=1000 + n, extension=n % 2 == 0))
    request(private(qpn=1000 + n, extension=n % 2 == 0), sender=own_gid)
    time.sleep(0.005)
