# SPDX-License-Identifier: GPL-2.0

# Hands frames to ib0. Arguments: the link-layer address that they are for, without colons, their type, how many, and how
# many bytes each has behind its header; and a command to be run at once behind that, if there is one.

import socket, struct, subprocess, sys

address, kind, count, size = bytes.fromhex(sys.argv[1]), *(int(word, 0) for word in sys.argv[2:5])
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
packets.bind(("ib0", 0x0800))
for _ in range(count):
    packets.send(address + struct.pack("!HH", kind, 0) + bytes(size))
if len(sys.argv) > 5:
    subprocess.run(sys.argv[5:], check=True)
