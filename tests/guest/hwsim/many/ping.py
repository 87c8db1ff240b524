# SPDX-License-Identifier: GPL-2.0
# Hosts are the network namespaces h1, h2, ...: each has its ib0 and pings so many others, half of them on either side.
# "up": gives each its address, and waits until all have a carrier. "ping": does that, and says how long it took.
# "first": the first one pings all others, until each has answered.
import errno
import fcntl
import os
import select
import socket
import struct
import sys
import time

# Peers are STRIDE hosts apart: on other leaf switches, most of them.
HOSTS, PEERS, STRIDE = map(int, sys.argv[2:5])
SIOCSIFFLAGS, SIOCGIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK = 0x8914, 0x8913, 0x8916, 0x891C
IFF_UP, IFF_RUNNING = 0x1, 0x40


def enter(host):
    with open(f"/run/netns/h{host + 1}") as namespace:
        os.setns(namespace.fileno(), os.CLONE_NEWNET)


def address(host):
    return f"10.1.{(host + 1) >> 8}.{(host + 1) & 255}"


def ifreq(text):
    return struct.pack("16sHH4s8x", b"ib0", socket.AF_INET, 0, socket.inet_aton(text))


def flags(sock):
    return struct.unpack("16sH", fcntl.ioctl(sock, SIOCGIFFLAGS, struct.pack("16sH14x", b"ib0", 0))[:18])[1]


def up():
    sockets = []
    for host in range(HOSTS):
        enter(host)
        # Each would have a group of its own for neighbour discovery.
        with open("/proc/sys/net/ipv6/conf/ib0/disable_ipv6", "w") as file:
            file.write("1")
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        fcntl.ioctl(sock, SIOCSIFADDR, ifreq(address(host)))
        fcntl.ioctl(sock, SIOCSIFNETMASK, ifreq("255.255.0.0"))
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH14x", b"ib0", flags(sock) | IFF_UP))
        sockets.append(sock)
    while not all(flags(sock) & IFF_RUNNING for sock in sockets):
        time.sleep(0.1)


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def echo(host, peer):
    body = struct.pack("!HHQ", host, peer, 0)
    return struct.pack("!BBH", 8, 0, checksum(struct.pack("!BBH", 8, 0, 0) + body)) + body


def ping():
    sockets, poll = [], select.epoll()
    for host in range(HOSTS):
        enter(host)
        sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        sock.setblocking(False)
        poll.register(sock, select.EPOLLIN)
        sockets.append(sock)
    hosts = {sock.fileno(): host for host, sock in enumerate(sockets)}

    def receive(seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            for fd, _ in poll.poll(left):
                host = hosts[fd]
                try:
                    data = sockets[host].recv(256)
                except BlockingIOError:
                    continue
                if data[20] == 0:
                    missing.discard((host, struct.unpack("!HH", data[24:28])[1]))

    begin = time.monotonic()
    missing, sent = set(), 0
    for n in range(1, PEERS // 2 + 1):
        for host in range(HOSTS):
            for peer in ((host + n * STRIDE) % HOSTS, (host - n * STRIDE) % HOSTS):
                missing.add((host, peer))
                sockets[host].sendto(echo(host, peer), (address(peer), 0))
                sent += 1
        print("round", n, flush=True)
        receive(0.5)
    while missing:
        receive(3)
        for host, peer in list(missing):
            sockets[host].sendto(echo(host, peer), (address(peer), 0))
            sent += 1
    print("done", sent, f"{time.monotonic() - begin:.1f}", flush=True)


def first():
    enter(0)
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    missing = set(range(1, HOSTS))
    while missing:
        sock.setblocking(False)
        for peer in missing:
            try:
                sock.sendto(echo(0, peer), (address(peer), 0))
            except OSError as error:
                # Too many wait for a neighbour.
                if error.errno not in (errno.ENOBUFS, errno.EAGAIN):
                    raise
                break
        end = time.monotonic() + 1
        while missing and (left := end - time.monotonic()) > 0:
            sock.settimeout(left)
            try:
                data = sock.recv(256)
            except TimeoutError:
                break
            if data[20] == 0:
                missing.discard(struct.unpack("!HH", data[24:28])[1])


{"up": up, "ping": ping, "first": first}[sys.argv[1]]()
