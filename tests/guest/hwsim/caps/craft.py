# SPDX-License-Identifier: GPL-2.0

# Sends datagrams to the host that argument 2 is and whose hardware address argument 3 is, from argument 1: their
# checksum is right, wrong and none.

import ctypes, socket, struct, sys
source, target = (socket.inet_aton(a) for a in sys.argv[1:3])
# Python takes no addresses of more than 8 bytes.
sendto = ctypes.CDLL(None, use_errno=True).sendto
address = struct.pack("=HHiHBB", 17, 8, socket.if_nametoindex("ib0"), 0, 0, 20) + bytes.fromhex(sys.argv[3].replace(":", ""))
raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff
for text in ("right", "wrong", "none", "header", "last"):
    data = text.encode()
    head = struct.pack("!HHHH", 4000, 4001, 8 + len(data), 0)
    value = checksum(source + target + struct.pack("!HH", 17, len(head + data)) + head + data)
    value = {"wrong": value ^ 0x0100, "none": 0}.get(text, value)
    udp = head[:6] + struct.pack("!H", value) + data
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 7, 0, 64, 17, 0) + source + target
    value = checksum(ip) ^ (0x0100 if text == "header" else 0)
    ip = ip[:10] + struct.pack("!H", value) + ip[12:]
    if sendto(raw.fileno(), ip + udp, len(ip + udp), 0, address, len(address)) < 0:
        raise OSError(ctypes.get_errno())
