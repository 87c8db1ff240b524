# SPDX-License-Identifier: GPL-2.0

# Asks an interface of InfiniBand for connections as another driver does, in ever new names, as any user of any host may, and
# confirms the answers, but for one at a time. Each port has two LIDs, and the user takes turns. Arguments: GID and QPN of the
# interface that is asked, the own GID, and the first LIDs of both ports. Follows ucm.py, after what makes a user of it.

import time
gid, own_gid = (socket.inet_pton(socket.AF_INET6, sys.argv[n]) for n in (1, 3))
qpn, lid, own_lid = (int(sys.argv[n], 0) for n in (2, 4, 5))
SET_OPTION = 14

# The service of the interface, as Linux has it.
addresses = ib(own_gid) + ib(gid, 1 << 60 | qpn, 2**64 - 1)

def path(name, own):
    """A path record (IBA volume 1, section 15.2.5.16) for whatever direction, from a GID that the user chooses."""
    record = struct.pack("!8x16s16sHHI", gid, name, lid, own, 0)
    record += struct.pack("!BBHHBBBB6x", 0, 0x80, 0xffff, 0, 0x80 | 4, 0x80 | 3, 0x80 | 14, 0)
    # It is the primary one, of messages too.
    return struct.pack("=II", 1 | 2 | 8 | 32, 0) + record

def ask(name, mine):
    number = create(0x13f)
    chosen = ctypes.create_string_buffer(path(name, own_lid + mine % 2), 72)
    private = struct.pack("!II", mine, 65524)
    for expected, step, body in (
        ("address-resolved", RESOLVE_ADDRESS, struct.pack("=IIHHI", number, 2000, 48, 48, 0) + addresses),
        ("route-resolved", SET_OPTION, struct.pack("=QIIII", ctypes.addressof(chosen), number, 1, 1, 72)),
        ("response", CONNECT, parameters(private) + struct.pack("=II8x", number, 0)),
    ):
        command(step, body)
        about = None
        # Earlier ones come to an end meanwhile.
        while about != number:
            about, what, _ = event(30, expected)
        if what != expected:
            return None
    return number

def confirm(number):
    # Without parameters this confirms the answer.
    command(ACCEPT, struct.pack("=Q", 1) + bytes(272) + struct.pack("=II8x", number, 0))

count, confirmed, open_ = 0, 0, None
while True:
    count += 1
    number = ask(own_gid[:8] + struct.pack("!HHI", 0xbad, 0, count // 4), 0x1000 + count)
    if number is None:
        time.sleep(0.1)
    else:
        if open_ is not None:
            confirm(open_)
            confirmed += 1
        open_ = number
    if count % 20 == 0:
        print("asked", count, confirmed, flush=True)
