# SPDX-License-Identifier: GPL-2.0

# Answers them, for ever.

import socket
s = socket.create_server(("", 5002))
while True:
    c, _ = s.accept()
    got = 0
    while data := c.recv(100):
        got += len(data)
        while got >= 100:
            got -= 100
            c.send(b"z")
