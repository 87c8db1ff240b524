# SPDX-License-Identifier: GPL-2.0
# Prints what netdev-genl says of an interface's queues, as JSON: counters of all, of each, and the NAPI of each.

import json
import socket
import struct
import sys

QUEUE_GET, QSTATS_GET = 10, 12
DUMP, REQUEST = 0x300, 1
NAMES = {8: "rx_packets", 9: "rx_bytes", 10: "tx_packets", 11: "tx_bytes", 12: "rx_alloc_fail", 13: "rx_hw_drops",
         24: "tx_hw_drops", 25: "tx_hw_drop_errors", 27: "tx_needs_csum", 33: "tx_stop", 34: "tx_wake"}

nl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
index = socket.if_nametoindex(sys.argv[1])


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def attributes(data):
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & 0x3fff, data[4:length]
        data = data[(length + 3) & ~3:]


def ask(family, command, flags, body):
    payload = struct.pack("=BBH", command, 1, 0) + body
    nl.send(struct.pack("=IHHII", 16 + len(payload), family, REQUEST | flags, 1, 0) + payload)
    while True:
        data = nl.recv(1 << 16)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            body, data = data[16:length], data[(length + 3) & ~3:]
            if kind == 2:
                assert struct.unpack_from("=i", body)[0] == 0, body
            if kind in (2, 3):
                return
            yield dict(attributes(body[4:]))
            if not flags & DUMP:
                return


def number(data):
    return int.from_bytes(data, sys.byteorder)


family = next(ask(16, 3, 0, attribute(2, b"netdev\0")))
family = number(family[1])
device = attribute(1, struct.pack("=I", index))


def stats(body):
    for found in ask(family, QSTATS_GET, DUMP, body):
        counters = {NAMES[kind]: number(value) for kind, value in found.items() if kind in NAMES}
        yield {"counters": counters, "type": number(found.get(2, b"")), "id": number(found.get(3, b""))}


queues = ask(family, QUEUE_GET, DUMP, attribute(2, struct.pack("=I", index)))
print(json.dumps({
    "device": [found["counters"] for found in stats(device)],
    "queues": list(stats(device + attribute(4, struct.pack("=I", 1)))),
    "napi": [[number(found[3]), number(found[1]), number(found.get(4, b""))] for found in queues],
}))
