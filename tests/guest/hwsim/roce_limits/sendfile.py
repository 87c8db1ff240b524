# SPDX-License-Identifier: GPL-2.0

# Sends 8 MiB of a file, whose pages are the pieces of large packets.

import socket, sys
with open("/tmp/roce-devices", "w+b") as file:
    file.write(b"\xa5" * (8 << 20))
    file.flush()
    file.seek(0)
    with socket.create_connection((sys.argv[1], 4001)) as sock:
        sock.sendfile(file)
