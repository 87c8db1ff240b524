# SPDX-License-Identifier: GPL-2.0

"""Sends to groups 239.7.0.x, joins them and leaves them, in any order, on the interfaces in arguments 3 and up, by so many
steps (argument 2) from a seed (argument 1). A seed of 0 stands for one group that is sent to, joined and left in turn."""

import random
import socket
import struct
import sys
import time

seed, steps, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
chance = random.Random(seed)
senders, members = {}, {}
for name in names:
    index = struct.pack("=4s4si", b"", b"", socket.if_nametoindex(name))
    senders[name] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    senders[name].setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, index)


def join(name, group):
    member = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    index = struct.pack("=4si", b"", socket.if_nametoindex(name))
    member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + index)
    members[name, group] = member


for step in range(steps):
    name, group = chance.choice(names), f"239.7.0.{chance.randint(1, 3)}"
    what = chance.choice(["send", "change"])
    if seed == 0:
        group, what = f"239.7.0.{step // 3 % 250 + 1}", ["send", "change", "change"][step % 3]
    if what == "send":
        senders[name].sendto(b"x", (group, 4000))
    elif (name, group) in members:
        members.pop((name, group)).close()
    else:
        join(name, group)
    time.sleep(chance.choice([0, 0.002, 0.02, 0.05]))
