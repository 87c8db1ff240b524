# SPDX-License-Identifier: GPL-2.0

# Super-frames whose segments are as long as the MTU, which argument 2 is, and longer by a byte, of which the last one is
# short. Follows craft.py.

mtu = int(sys.argv[2])
for version, headers in (4, 40), (6, 60):
    fits = mtu - headers
    send(version, 6, tcp(1, ACK | PSH), data[:3 * fits], fits, id=1)
    send(version, 6, tcp(1000000, ACK | PSH), data[:2 * (fits + 1) + 10], fits + 1, id=7)
end()
