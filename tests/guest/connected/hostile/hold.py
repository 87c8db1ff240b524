# SPDX-License-Identifier: GPL-2.0

# Begins a message by each connection that it gets, and never ends one. Asks for 16 at a time by each name, until it gets
# none. Disconnects when it is interrupted. Follows senders.py.

held, refused = [], 0
try:
    for name in names:
        for _ in range(10):
            confirmed = confirm([Sender(name) for _ in range(16)])
            if not confirmed:
                break
            refused += 16 - len(confirmed)
            held += [one for one in confirmed if one.begin()]
    print("held", len(held), refused, flush=True)
    while True:
        receive(1000)
except KeyboardInterrupt:
    for one in held:
        one.end()
