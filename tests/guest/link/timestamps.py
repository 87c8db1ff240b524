# SPDX-License-Identifier: GPL-2.0
# "listen": takes what comes by TCP. With a peer's address instead: sends it a datagram, and a megabyte by TCP, and asks the
# kernel when the first of each went to the device. Prints "udp", "tcp" or both: those whose time lies between the call and now.
import select, socket, struct, sys, time

PORT = 5900
TIMESTAMPING = 37
TX_SOFTWARE, SOFTWARE, ID, TSONLY = 1 << 1, 1 << 4, 1 << 7, 1 << 11


def listen():
    with socket.create_server(('', PORT)) as server:
        print('listening')
        while True:
            stream, _ = server.accept()
            while stream.recv(1 << 20):
                pass


def is_stamped(sock, send):
    sock.setsockopt(socket.SOL_SOCKET, TIMESTAMPING, TX_SOFTWARE | SOFTWARE | ID | TSONLY)
    before = time.time_ns()
    send()
    errors = select.poll()
    errors.register(sock, 0)
    if not errors.poll(20000):
        return False
    _, control, _, _ = sock.recvmsg(1, 512, socket.MSG_ERRQUEUE)
    stamps = [data for level, kind, data in control if (level, kind) == (socket.SOL_SOCKET, TIMESTAMPING)]
    times = [seconds * 10**9 + ns for seconds, ns in (struct.unpack_from('qq', data) for data in stamps)]
    return len(times) == 1 and before <= times[0] <= time.time_ns()


def send(peer):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    tcp = socket.create_connection((peer, PORT), 20)
    udp_is = is_stamped(udp, lambda: udp.sendto(bytes(64), (peer, PORT)))
    tcp_is = is_stamped(tcp, lambda: tcp.sendall(bytes(1 << 20)))
    print('udp' if udp_is else '', 'tcp' if tcp_is else '')


if sys.argv[1] == 'listen':
    listen()
send(sys.argv[1])
