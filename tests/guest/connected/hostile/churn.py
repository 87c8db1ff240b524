# SPDX-License-Identifier: GPL-2.0

# Asks for 32 connections by each name at a time, and ends what it gets as soon as it has sent something: a frame, or, if the
# fourth argument is "begin", the beginning of one. Again and again, until it is interrupted; says how many it had then.
# Follows senders.py.

had = 0
print("ready", flush=True)
try:
    while True:
        confirmed = confirm([Sender(name) for name in names for _ in range(32)])
        for one in confirmed:
            if sys.argv[4] == "begin":
                one.begin()
            else:
                one.send()
        for one in confirmed:
            one.end()
        had += len(confirmed)
except KeyboardInterrupt:
    print("had", had, flush=True)
