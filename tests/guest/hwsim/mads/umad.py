# SPDX-License-Identifier: GPL-2.0

# Opens the umad device of an HCA, with an agent on QP0 and one on QP1 (`<rdma/ib_user_mad.h>`).

import fcntl, glob, os, random, select, struct, sys

def open_umad(hca):
    for path in glob.glob("/sys/class/infiniband_mad/umad*"):
        if open(path + "/ibdev").read().strip() == hca:
            fd = os.open("/dev/infiniband/" + os.path.basename(path), os.O_RDWR | os.O_NONBLOCK)
            # IB_USER_MAD_ENABLE_PKEY: headers have a P_Key index.
            fcntl.ioctl(fd, 0x1b03)
            return fd
    sys.exit("no umad device of " + hca)

def register(fd, qpn):
    # For no class: it gets the answers to what it sends, and nothing else.
    request = bytearray(struct.pack("=I16sBBB3sB", 0, bytes(16), qpn, 0, 0, bytes(3), 0) + bytes(1))
    # IB_USER_MAD_REGISTER_AGENT
    fcntl.ioctl(fd, 0xc01c1b01, request, True)
    return struct.unpack_from("=I", request)[0]

def envelope(agent, qpn=0, qkey=0, lid=0xffff, sl=0, bits=0, grh=0, index=0, gid=bytes(16), pkey=0, timeout=0, retries=0):
    return (struct.pack("=5I", agent, 0, timeout, retries, 0)
            + struct.pack("!IIHBBBBBB16sI", qpn, qkey, lid, sl, bits, grh, index, 64, 0, gid, 0)
            + struct.pack("=H6x", pkey))

tid = 0
def mad(cls, method, attribute, modifier=0, body=b"", version=1, base=1, status=0, specific=0):
    global tid
    tid += 1
    head = struct.pack("!BBBBHHQHHI", base, cls, version, method, status, specific, tid, attribute, 0, modifier)
    return head + body.ljust(232, b"\0")

def directed(data, path=(1,), key=0, slid=0xffff, dlid=0xffff):
    initial = bytes([0, *path]).ljust(64, b"\0")[:64]
    return struct.pack("!QHH28x", key, slid, dlid) + data.ljust(64, b"\0") + initial + bytes(64)

def exchange(fd, request, limit):
    os.write(fd, request)
    if not select.select([fd], [], [], limit)[0]:
        sys.exit("no answer")
    answer = os.read(fd, 1024)
    return struct.unpack_from("=5I", answer)[1], answer[64:]

def node_guid(fd, agent, hops, limit):
    """NodeInfo of the HCA at the end of a directed route of so many hops."""
    request = mad(0x81, 1, 0x11, body=directed(b"", [1] * hops), specific=hops)
    status, answer = exchange(fd, envelope(agent, timeout=2000, retries=3) + request, limit)
    if status or len(answer) != 256:
        sys.exit("NodeInfo: status %d, %d bytes" % (status, len(answer)))
    return struct.unpack_from("!Q", answer, 64 + 12)[0]

fd = open_umad(sys.argv[1])
gsi = register(fd, 1)
# There is no QP0 on Ethernet.
with open("/sys/class/infiniband/%s/ports/1/link_layer" % sys.argv[1]) as link_layer:
    smi = register(fd, 0) if link_layer.read() == "InfiniBand\n" else None
