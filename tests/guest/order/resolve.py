# SPDX-License-Identifier: GPL-2.0
# Asks a neighbour for its address and pings it, in turn. Arguments: own address, the neighbour's, how many times.
import socket
import struct
import subprocess
import sys

OWN, OTHER, TIMES = sys.argv[1], sys.argv[2], int(sys.argv[3])
ETH_P_ARP, ARPHRD_INFINIBAND, ETH_P_IP, REQUEST = 0x0806, 32, 0x0800, 1

neighbour = subprocess.check_output(["ip", "neigh", "show", OTHER, "dev", "ib0"], text=True).split()
to = bytes.fromhex(neighbour[neighbour.index("lladdr") + 1].replace(":", ""))
with open("/sys/class/net/ib0/address") as address:
    sender = bytes.fromhex(address.read().strip().replace(":", ""))
request = (
    struct.pack("!HHBBH", ARPHRD_INFINIBAND, ETH_P_IP, len(sender), 4, REQUEST)
    + sender
    + socket.inet_aton(OWN)
    + bytes(len(to))
    + socket.inet_aton(OTHER)
)
# A packet socket's own addresses have at most 8 bytes: the frame begins with its destination.
frame = to + struct.pack("!HH", ETH_P_ARP, 0) + request
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
packets.bind(("ib0", ETH_P_ARP))
for _ in range(TIMES):
    packets.send(frame)
    subprocess.run(["ping", "-q", "-c", "1", "-W", "5", OTHER], check=True, stdout=subprocess.DEVNULL)
