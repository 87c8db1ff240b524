# SPDX-License-Identifier: GPL-2.0

# Forges UD datagrams, and whatever else has a BTH: RoCEv2 over IPv6 or IPv4 in an Ethernet frame, ICRC by
# IBA annex A17.

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

def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff

def packet(opcode, to_qpn, number, headers, payload, to, source, ask=False):
    pad = -len(payload) % 4
    bth = struct.pack("!BBHII", opcode, 0x40 | pad << 4, 0xffff, to_qpn, ask << 31 | number)
    body = headers + payload + bytes(pad)
    length = 8 + len(bth) + len(body) + 4
    if to[:12] == bytes(10) + b"\xff\xff":
        # The GIDs of IPv4 addresses.
        addresses = source[12:] + to[12:]
        ip4 = lambda tos, ttl, check: struct.pack("!BBHIBBH", 0x45, tos, 20 + length, 0x4000, ttl, 17, check) + addresses
        kind, ip, masked_ip = b"\x08\x00", ip4(0, 64, checksum(ip4(0, 64, 0))), ip4(255, 255, 0xffff)
    else:
        addresses = source + to
        ip6 = lambda flow, hops: struct.pack("!IHBB", 6 << 28 | flow, length, 17, hops) + addresses
        kind, ip, masked_ip = b"\x86\xdd", ip6(0, 64), ip6(0xfffffff, 255)
    udp = struct.pack("!HHH", 0xc000, 4791, length)
    masked_bth = bth[:4] + b"\xff" + bth[5:]
    icrc = zlib.crc32(b"\xff" * 8 + masked_ip + udp + b"\xff\xff" + masked_bth + body)
    datagram = udp + b"\0\0" + bth + body + struct.pack("<I", icrc)
    # The UDP checksum is wanted over IPv6.
    total = checksum(addresses + struct.pack("!II", length, 17) + datagram + bytes(len(datagram) % 2))
    datagram = udp + struct.pack("!H", total or 0xffff) + datagram[8:]
    ether = (b"\x33\x33" + to[12:] if to[0] == 0xff else mac) + own_mac + kind
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
