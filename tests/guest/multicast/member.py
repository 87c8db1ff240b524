# SPDX-License-Identifier: GPL-2.0

# Joins the group in argument 2 by the RDMA connection manager, as user space does, on the port that has the address in
# argument 1, and stays in it until it is ended. Follows ucm.py.

own, group = sys.argv[1:3]
JOIN_MCAST = 22
# IPoIB's own groups (RDMA_PS_IPOIB), by unreliable datagrams.
number = create(0x2)
command(BIND_IP, struct.pack("=Q", 0) + address(own) + struct.pack("=I", number))
place = address(group)[:16].ljust(128, b"\0")
command(JOIN_MCAST, struct.pack("=QIHH", 1, number, 16, 0) + place, 4)
print(event(30, "multicast-joined")[1], flush=True)
event(1000, "end")
