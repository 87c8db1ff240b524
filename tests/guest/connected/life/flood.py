# SPDX-License-Identifier: GPL-2.0

# Sends datagrams to a host, its first argument, of as many bytes as the second says, from many sockets, as
# fast as they are taken, until it is ended, and then says how many.

import select, socket, sys
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(32)]
for s in sockets:
    s.connect((sys.argv[1], 4000))
    s.setblocking(False)
print("ready", flush=True)
data = bytes(int(sys.argv[2]))
sent = 0
try:
    while True:
        for s in select.select([], sockets, [])[1]:
            try:
                s.send(data)
                sent += 1
            except OSError:
                # Nobody listens there.
                pass
except KeyboardInterrupt:
    print(sent, "datagrams sent")
