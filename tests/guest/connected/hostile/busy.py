# SPDX-License-Identifier: GPL-2.0

# Sends frames without end, and answers whatever comes by the connection that there is no buffer for it (RNR NAK). Follows
# connection.py.

first = None
print("ready", flush=True)
while True:
    post(good)
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        opcode, at, _ = receive(0.01)
        if opcode is not None and opcode < 6:
            # A later number would acknowledge those before it.
            first = at if first is None else first
            s.send(packet(0x11, other_qpn, first, struct.pack("!I", 0x2c << 24), b"", gid, me))
