# SPDX-License-Identifier: GPL-2.0

# Those that make no sense, a few of each kind; prints nothing.

for n in range(3):
    for data in (private(qpn=0), private(qpn=0xffffff), private(mtu=0), private(mtu=70000), private(lane=8), private(most=1000)):
        request(data)
    # These ports, by names that the interfaces do not have.
    names = [socket.inet_pton(socket.AF_INET6, name) for name in ("fd77::1", "fd77::2")]
    request(private(), sender=names[0], to=names[1])
    request(private(), transport=1)
    request(private(), mtu=0)
    # Of these, the CM itself is to be rid.
    request(private(), pkey=0x1234)
    request(private(), service=12345)
    request(os.urandom(92), service=os.getpid())
    send(os.urandom(256), source=victim, source_qpn=1, to_qpn=1, key=0x80010000)
