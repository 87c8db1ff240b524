# SPDX-License-Identifier: GPL-2.0
# Sends datagrams until it is ended: small ones to the addresses given, large ones in pieces, to groups, and to
# neighbours that are not there. Then it says how many.

import socket
import sys

four, six = sys.argv[1:]
sock4 = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock6 = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
sock4.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(four[:-1] + "1"))
small, large = bytes(32), bytes(30000)
n = sent = 0


def send(sock, data, to):
    global sent
    try:
        sock.sendto(data, to)
        sent += 1
    except OSError:
        # The interface is down, its queue is full, or nobody is there.
        pass


try:
    while True:
        n += 1
        send(sock4, small, (four, 9))
        if n % 64 == 0:
            send(sock6, small, (six, 9))
        if n % 256 == 0:
            send(sock4, large, (four, 9))
        if n % 1024 == 0:
            send(sock4, small, (f"239.1.{n // 1024 % 200}.1", 9))
            send(sock4, small, (f"10.1.0.{3 + n // 1024 % 250}", 9))
except KeyboardInterrupt:
    print(sent, "datagrams sent")
