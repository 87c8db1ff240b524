# SPDX-License-Identifier: GPL-2.0

# Asks for an echo where nothing is known of the neighbour and there is no connection, then for another
# each millisecond until one has gone through a connection. Prints, by the host's clock in
# milliseconds from the first request on, when that was answered, and when one had gone through; and
# how many frames went by UD for want of a connection.
#
# Arguments: the target, the interface, and whether it counts.

import array, fcntl, os, socket, struct, sys, time
target, interface, counts = sys.argv[1], sys.argv[2], sys.argv[3] == "true"
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

def ethtool(data):
    request = struct.pack("16sP16x", interface.encode(), data.buffer_info()[0])
    fcntl.ioctl(control, 0x8946, request)

if counts:
    # ETHTOOL_GSSET_INFO, _GSTRINGS and _GSTATS of ETH_SS_STATS.
    info = array.array("B", struct.pack("=IIQI", 0x37, 0, 2, 0))
    ethtool(info)
    count = struct.unpack_from("=I", info, 16)[0]
    strings = array.array("B", struct.pack("=III", 0x1b, 1, count) + bytes(32 * count))
    ethtool(strings)
    names = [bytes(strings[12 + 32 * n:44 + 32 * n]).rstrip(b"\0").decode() for n in range(count)]
    values = array.array("B", struct.pack("=II", 0x1d, count) + bytes(8 * count))

def counter(name):
    ethtool(values)
    return struct.unpack_from("=Q", values, 8 + 8 * names.index(name))[0]

def echo(n):
    head = struct.pack("!BBHHH", 8, 0, 0, os.getpid() & 0xffff, n)
    total = sum(struct.unpack("!4H", head))
    total = (total & 0xffff) + (total >> 16)
    s.sendto(head[:2] + struct.pack("!H", ~total & 0xffff) + head[4:], (target, 0))

s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
s.setblocking(False)
if counts and counter("rc_current") != 0:
    sys.exit("there is a connection already")
before = counter("rc_tx_frames") if counts else 0
datagrams = counter("rc_fallback") if counts else 0
answered = used = None
n = 0
start = time.monotonic()
echo(0)
while answered is None or counts and used is None:
    time.sleep(0.0003)
    now = time.monotonic() - start
    if now > 20:
        sys.exit(f"answered after {answered}, used after {used}")
    try:
        while True:
            header, identity, number = struct.unpack_from("!B3xHH", s.recv(2000), 20)
            if header == 0 and identity == os.getpid() & 0xffff and number == 0:
                answered = answered or now
    except BlockingIOError:
        pass
    if counts and used is None and counter("rc_tx_frames") > before:
        used = now
    if now * 1000 > n + 1:
        n += 1
        echo(n)
datagrams = counter("rc_fallback") - datagrams if counts else 0
print(answered * 1000, used * 1000 if used else "unknown", datagrams)
