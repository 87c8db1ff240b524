# SPDX-License-Identifier: GPL-2.0

# Has a connection, and sends a frame by it ten times a second. After a second, somebody asks for another one in the same
# name, as the same driver, and confirms it. After the last frame, it asks for a third one. Follows senders.py.

one, = confirm([Sender(names[0])])
own_qpn = 0x1000 + one.id % 0x100000
print("ready", flush=True)

def again():
    other = Sender.__new__(Sender)
    other.name, other.id, other.other = names[0], count + 1, None
    request(private(qpn=own_qpn, extension=False), sender=names[0], mtu=1)
    return len(confirm([other]))

for n in range(30):
    one.send()
    one.number = one.number + 1 & 0xffffff
    time.sleep(0.1)
    if n == 10:
        print("doubled", again(), flush=True)
print("done", flush=True)
time.sleep(5)
print("third", again(), flush=True)
