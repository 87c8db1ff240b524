# SPDX-License-Identifier: GPL-2.0

# Far more messages than it may send, as fast as they go, for some seconds.

print("ready", flush=True)
end = time.monotonic() + 4
while time.monotonic() < end:
    for n in range(16):
        post(good)
    acknowledge(0)
acknowledge(5)
