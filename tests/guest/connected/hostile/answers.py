# SPDX-License-Identifier: GPL-2.0

# Is asked for connections by its names, and answers as no honest peer does, by each name in another way. The third argument:
# how many names it has. Says "answered" once each was asked, and was sent a datagram behind the end of that. When it is
# interrupted, it says how many requests there were; how many connections the other side has confirmed; and how many got a
# reply with data that must not be believed, and how many of these replies the other side has rejected. Follows request.py.

import random

dice = random.Random(1)
names = [socket.inet_pton(socket.AF_INET6, "fe80::bad:%x" % n) for n in range(1, int(sys.argv[3]) + 1)]
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86dd))
tap.bind(("eth0", 0x86dd))
DATAGRAM, ASK, REJECT, REPLY, CONFIRM = 0x64, 0x10, 0x12, 0x13, 0x14
# Reasons for a rejection (IBA volume 1, section 12.6.7.2), and those of ours in its data.
TIMEOUT, STALE, REDIRECTED, CONSUMER = 4, 10, 24, 28
CLOSED, UNUSED, FULL, DATA = 1, 2, 3, 6

def receive():
    """Name, queue pair and contents of the next datagram to one of the names."""
    while True:
        data = tap.recv(65536)
        if data[20] == 17 and data[38:54] in names and data[56:58] == struct.pack("!H", 4791) and data[62] == DATAGRAM:
            # Behind BTH and DETH.
            return data[38:54], struct.unpack_from("!I", data, 66)[0] & 0xffffff, data[82:-4]

numbers, replied = 0, {}

class Request:
    """A request for a connection, of the other side."""

    def __init__(self, name, body):
        self.name = name
        self.id, service = struct.unpack_from("!I4xQ", body)
        # The interface that is asked for, and the queue pair of who asks.
        self.qpn, self.pair = service & 0xffffff, struct.unpack_from("!I", body, 32)[0] >> 8

    def tell(self, attribute, data, source=None):
        head = struct.pack("!BBBBHHQHHI", 1, 7, 2, 3, 0, 0, self.id, attribute, 0, 0)
        send(head + data.ljust(232, b"\0"), source=source or self.name, source_qpn=1, to_qpn=1, key=0x80010000)

    def reply(self, data, pair=0x777, own=None):
        """Accepts it (section 12.6.8), and returns the number of our end."""
        global numbers
        if own is None:
            numbers = own = numbers + 1
        replied[own] = self
        # Each from a node of its own: the CM takes two connections to one queue pair for one that is stale.
        self.tell(REPLY, struct.pack("!6I4BQ", own, self.id, 0, pair << 8, 0, 1 << 8, 0, 0, 0, 7 << 5, own) + data)
        return own

    def reject(self, reason=CONSUMER, data=b"", info=b"", length=0, message=0, own=0, source=None):
        """Rejects it (section 12.6.7), or another `message` than the request."""
        head = struct.pack("!IIBBH72s", own, self.id, message << 6, length << 1, reason, info)
        self.tell(REJECT, head + data, source)

    def refuse(self, code):
        """Rejects it as one of ours does."""
        self.reject(data=struct.pack("!I4x4sB", self.qpn, b"iprs", code))

    def good(self):
        return private(self.qpn)

# Data of a reply that make no sense, or are another interface's.
WRONG = [
    lambda asked: b"",
    lambda asked: dice.randbytes(196),
    lambda asked: private(0xffffff),
    lambda asked: private(qpn),
    lambda asked: private(asked.qpn + 1000),
    lambda asked: private(asked.qpn, mtu=0),
    lambda asked: private(asked.qpn, mtu=71, extension=False),
    lambda asked: private(asked.qpn, mtu=70000),
    lambda asked: private(asked.qpn, lane=8),
    # By this one, nothing could ever be sent.
    lambda asked: private(asked.qpn, credits=0),
]

def reply_twice(asked):
    own = asked.reply(asked.good())
    asked.reply(asked.good(), own=own)
    asked.reply(asked.good(), pair=0x778)

# Replies whose faults the other side cannot see.
TAKEN = [
    lambda asked: asked.reply(asked.good(), pair=0),
    lambda asked: asked.reply(asked.good(), pair=0xffffff),
    lambda asked: asked.reply(asked.good(), pair=asked.pair),
    lambda asked: asked.reply(private(asked.qpn, version=9)),
    reply_twice,
]

def reject_in_time(asked):
    # Of this one, the CM knows no connection.
    asked.reject(TIMEOUT, info=dice.randbytes(8))
    asked.refuse(FULL)

def reject_and_reply(asked):
    asked.reject()
    asked.reply(asked.good())

def reply_and_reject(asked):
    own = asked.reply(asked.good())
    asked.reject(message=1, own=own)

REJECTED = [
    lambda asked: asked.reject(0),
    lambda asked: asked.reject(1),
    lambda asked: asked.reject(STALE),
    lambda asked: asked.reject(77),
    lambda asked: asked.reject(0xffff),
    lambda asked: asked.reject(data=dice.randbytes(148)),
    # More information than there is room for, and some in a rejection that is to have another kind.
    lambda asked: asked.reject(info=dice.randbytes(72), length=127),
    lambda asked: asked.reject(REDIRECTED, info=dice.randbytes(72), length=72),
    # A reply that was never sent, and no message at all.
    lambda asked: asked.reject(message=1),
    lambda asked: asked.reject(message=3),
    lambda asked: asked.refuse(CLOSED),
    lambda asked: asked.refuse(UNUSED),
    lambda asked: asked.refuse(DATA),
    lambda asked: asked.refuse(0),
    lambda asked: asked.refuse(255),
    reject_in_time,
    reject_and_reply,
    reply_and_reject,
]

assert len(names) == len(WRONG) + len(TAKEN) + len(REJECTED)
ways = dict(zip(names, WRONG + TAKEN + REJECTED))
wrong, taken = names[:len(WRONG)], names[len(WRONG):][:len(TAKEN)]
# Requests by their numbers; names of which a request is over; and those that were sent a datagram since.
requests, ended, reached = set(), set(), set()
confirmed = misled = refused = 0
print("ready", flush=True)
try:
    while True:
        name, pair, body = receive()
        if pair != 1:
            # IPv4 to an interface.
            if name in ended - reached and body[:2] == b"\x08\x00":
                reached.add(name)
                if len(reached) == len(names):
                    print("answered", flush=True)
            continue
        attribute, data = body[17], body[24:]
        if attribute == ASK:
            asked = Request(name, data)
            # Not if the CM repeats it.
            if asked.id in requests:
                continue
            requests.add(asked.id)
            if name in wrong:
                misled += 1
                asked.reply(ways[name](asked))
                continue
            ways[name](asked)
            if name not in taken:
                ended.add(name)
        elif attribute == CONFIRM:
            own, = struct.unpack_from("!I", data, 4)
            asked = replied.pop(own, None)
            if asked:
                confirmed += 1
                # Of the connection, and from another address.
                asked.reject(message=2, own=own, source=names[names.index(name) - 1])
                ended.add(name)
        elif attribute == REJECT and data[92:97] == struct.pack("!4sB", b"iprs", DATA):
            refused += 1
            ended.add(name)
except KeyboardInterrupt:
    print(len(requests), confirmed, misled, refused)
