# SPDX-License-Identifier: GPL-2.0

# Opens the device of the RDMA connection manager (`<rdma/rdma_user_cm.h>`), which is for the network namespace of the
# program.

import ctypes, os, random, select, socket, struct, sys

CREATE_ID, BIND_IP, RESOLVE_IP, RESOLVE_ROUTE, CONNECT, LISTEN, ACCEPT, GET_EVENT, RESOLVE_ADDRESS = 0, 2, 3, 4, 6, 7, 8, 12, 21
EVENTS = """address-resolved address-error route-resolved route-error request response connect-error unreachable rejected
    established disconnected device-removed multicast-joined multicast-error address-changed over""".split()

fd = os.open("/dev/infiniband/rdma_cm", os.O_RDWR | os.O_NONBLOCK)

def command(number, body, size=0):
    """Writes a command, and returns its answer of `size` bytes, whose address goes into the body."""
    answer = ctypes.create_string_buffer(size)
    if size:
        at = 8 if number == CREATE_ID else 0
        body = body[:at] + struct.pack("=Q", ctypes.addressof(answer)) + body[at:]
    os.write(fd, struct.pack("=IHH", number, len(body), size) + body)
    return answer.raw

def create(space=0x106):
    """An id for a reliable connection, as a rule of RDMA_PS_TCP."""
    # Without a uid, the first field, there would be no events.
    return struct.unpack("=I", command(CREATE_ID, struct.pack("=QHB5x", 1, space, 2), 4))[0]

def address(ip, port=0):
    if ":" in ip:
        return struct.pack("=H", socket.AF_INET6) + struct.pack("!HI16s4x", port, 0, socket.inet_pton(socket.AF_INET6, ip))
    return (struct.pack("=H", socket.AF_INET) + struct.pack("!H4s", port, socket.inet_aton(ip))).ljust(28, b"\0")

def ib(gid, service=0, mask=0):
    """An address of AF_IB, in the default partition."""
    head = struct.pack("=H", 27) + struct.pack("!HI16sQQ", 0xffff, 0, gid, service, mask)
    return (head + bytes(8)).ljust(128, b"\0")

def parameters(data):
    # There is no queue pair; its number is made up, since the CM takes two connections with one number for stale.
    return struct.pack("=II256sBBBBBBBB", random.getrandbits(24), 0, data, len(data), 0, 1, 1, 0, 7, 7, 1)

def event(limit, expected):
    """The id, the name and the private data of the next event, which may be another one than expected."""
    if not select.select([fd], [], [], limit)[0]:
        sys.exit("no event; expected: " + expected)
    answer = command(GET_EVENT, b"", 512)
    number, kind = struct.unpack_from("=II", answer, 8)
    return number, EVENTS[kind], answer[28:28 + answer[284]]
