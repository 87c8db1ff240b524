# SPDX-License-Identifier: GPL-2.0

# Asks for 32 connections by each name at a time, and ends what it gets as soon as it has sent something: a frame, or, if the
# fourth argument is "begin", the beginning of one. Again and again, until it is interrupted: then it ends what it has, and
# says how many it had.
# Follows senders.py.

import signal

had, goes_on = 0, True

def interrupted(*_):
    global goes_on
    goes_on = False

signal.signal(signal.SIGINT, interrupted)
print("ready", flush=True)
while goes_on:
    confirmed = confirm([Sender(name) for name in names for _ in range(32)])
    for one in confirmed:
        if not goes_on:
            break
        if sys.argv[4] == "begin":
            one.begin()
        else:
            one.send()
    for one in confirmed:
        one.end()
    had += len(confirmed)
print("had", had, flush=True)
