# SPDX-License-Identifier: GPL-2.0

# Sends 24 datagrams to argument 1 with one call: the stack cuts them from one packet, and says of each but the last that
# more follow.

import socket
import sys

UDP_SEGMENT = 103
SIZE = 1000

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SIZE)
s.sendto(bytes(24 * SIZE), (sys.argv[1], 9))
