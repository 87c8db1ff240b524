# SPDX-License-Identifier: GPL-2.0

# Sends IPv6 packets of 3,000 bytes by a packet socket. Argument: the link-layer address, which is longer than Python allows.

import ctypes, os, socket, struct, sys

address = bytes.fromhex(sys.argv[1].replace(":", ""))
libc = ctypes.CDLL(None, use_errno=True)
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
to = struct.pack("=HHiHBB", socket.AF_PACKET, socket.htons(0x86dd), socket.if_nametoindex("ib0"), 32, 0, len(address)) + address
packet = struct.pack("!IHBB16s16s", 6 << 28, 2960, 17, 64, b"\xfd" + bytes(15), b"\xfd" + bytes(15)) + bytes(2960)
for _ in range(100):
    if libc.sendto(s.fileno(), packet, len(packet), 0, to, len(to)) != len(packet):
        sys.exit(os.strerror(ctypes.get_errno()))
