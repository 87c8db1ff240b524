# SPDX-License-Identifier: GPL-2.0

# Asks for all connections that one name gets, as one of ours does, and confirms them. Sends messages by each without end, and
# acknowledges no credit limit that comes by it. Asks again when they end. Follows senders.py.

class Asker(Sender):
    def __init__(self, name, lane):
        self.name, self.id, self.other = name, count + 1, None
        request(private(qpn=0x777, lane=lane), sender=name, mtu=1)

said = False
while True:
    askers = confirm([Asker(names[0], lane) for lane in range(8)])
    if askers and not said:
        said = True
        print("confirmed", len(askers), flush=True)
    end = time.monotonic() + 5
    while askers and time.monotonic() < end:
        for one in askers:
            one.send()
            one.number = one.number + 1 & 0xffffff
        time.sleep(0.002)
    receive(0.5)
