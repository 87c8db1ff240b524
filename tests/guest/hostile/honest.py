# SPDX-License-Identifier: GPL-2.0

# A frame that is honest, to prove that the forger's frames get through at all.

arp = struct.pack("!HHHHBBH", 0x0806, 0, 32, 0x0800, 20, 4, 1)
address = struct.pack("!I", own_qpn) + own_gid
send(arp + address + socket.inet_aton("10.1.0.99") + bytes(20) + socket.inet_aton("10.1.0.2"), to=group)
