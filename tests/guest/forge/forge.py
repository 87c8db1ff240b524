# SPDX-License-Identifier: GPL-2.0

# Forges UD datagrams, and whatever else has a BTH: RoCEv2 over IPv6 in an Ethernet frame, ICRC by IBA
# annex A17.

import os, random, socket, struct, sys, zlib
own_mac, own_gid, own_qpn = own
mac, gid, qpn = other
hexed = lambda s: bytes.fromhex(s.replace(":", ""))
own_mac, mac = hexed(own_mac), hexed(mac)
own_gid, gid = socket.inet_pton(socket.AF_INET6, own_gid), socket.inet_pton(socket.AF_INET6, gid)
qpn, own_qpn, qkey = int(qpn, 0), int(own_qpn, 0), 0x80010b1b
group = socket.inet_pton(socket.AF_INET6, "ff12:401b:ffff::ffff:ffff")
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
psn = 0

def packet(opcode, to_qpn, number, headers, payload, to, source, ask=False):
    pad = -len(payload) % 4
    bth = struct.pack("!BBHII", opcode, 0x40 | pad << 4, 0xffff, to_qpn, ask << 31 | number)
    body = headers + payload + bytes(pad)
    length = 8 + len(bth) + len(body) + 4
    ip = struct.pack("!IHBB", 6 << 28, length, 17, 64) + source + to
    masked_ip = struct.pack("!IHBB", 0x6fffffff, length, 17, 255) + source + to
    udp = struct.pack("!HHH", 0xc000, 4791, length)
    masked_bth = bth[:4] + b"\xff" + bth[5:]
    icrc = zlib.crc32(b"\xff" * 8 + masked_ip + udp + b"\xff\xff" + masked_bth + body)
    datagram = udp + b"\0\0" + bth + body + struct.pack("<I", icrc)
    # The UDP checksum is wanted over IPv6.
    summed = source + to + struct.pack("!II", length, 17) + datagram + bytes(len(datagram) % 2)
    total = sum(struct.unpack("!%dH" % (len(summed) // 2), summed))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    datagram = udp + struct.pack("!H", ~total & 0xffff or 0xffff) + datagram[8:]
    ether = (b"\x33\x33" + to[12:] if to[0] == 0xff else mac) + own_mac + b"\x86\xdd"
    return ether + ip + datagram

def frame(payload, to=None, source=None, source_qpn=None, to_qpn=None, key=None):
    global psn
    psn = (psn + 1) & 0xffffff
    to = to or gid
    source_qpn = own_qpn if source_qpn is None else source_qpn
    to_qpn = (0xffffff if to == group else qpn) if to_qpn is None else to_qpn
    deth = struct.pack("!II", qkey if key is None else key, source_qpn)
    return packet(0x64, to_qpn, psn, deth, payload, to, source or own_gid)

def send(payload, **fields):
    s.send(frame(payload, **fields))
