# SPDX-License-Identifier: GPL-2.0

# Serves what is sent to it, and says how much that was.

import socket, sys
with socket.create_server((sys.argv[1], 4001)) as server:
    print("ready", flush=True)
    peer, _ = server.accept()
    count = 0
    while data := peer.recv(1 << 20):
        assert not data.strip(b"\xa5")
        count += len(data)
print(count)
