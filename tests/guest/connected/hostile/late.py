# SPDX-License-Identifier: GPL-2.0

# A good message, later than a proof is expected, when the peer looks by itself; and nothing else but the answer to a challenge.

time.sleep(2)
post(good)
while challenges <= lost:
    acknowledge(0.1)
