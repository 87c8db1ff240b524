# SPDX-License-Identifier: GPL-2.0

# Takes the IPv6 side of `eth0` away and gives it a new one, before any other process of a host with one CPU runs.

import fcntl, os, socket, struct, sys
SIOCSIFMTU = 0x8922
mtu = int(open("/sys/class/net/eth0/mtu").read())
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
    for value in (1200, mtu):
        fcntl.ioctl(sock, SIOCSIFMTU, struct.pack("16si20x", b"eth0", value))
