# SPDX-License-Identifier: GPL-2.0

# Asks for connections as another driver does, which sends by them and is sent nothing, and confirms what is accepted; there is
# no queue pair at this end. The third argument: its names, with commas between them. Follows request.py.

import select, time
names = [socket.inet_pton(socket.AF_INET6, name) for name in sys.argv[3].split(",")]
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86dd))
tap.bind(("eth0", 0x86dd))
# In an InfiniBand packet of a connection.
MTU = 256
SEND_FIRST, SEND_ONLY, ACKNOWLEDGE, DATAGRAM = 0x00, 0x04, 0x11, 0x64
REJECT, ANSWER, CONFIRM, DISCONNECT = 0x12, 0x13, 0x14, 0x15

def receive(wait):
    """Opcode, queue pair and contents of the next packet to one of the names."""
    end = time.monotonic() + wait
    while select.select([tap], [], [], max(0, end - time.monotonic()))[0]:
        data = tap.recv(65536)
        if data[20] == 17 and data[38:54] in names and data[56:58] == struct.pack("!H", 4791):
            opcode, _, _, pair = struct.unpack_from("!BBHI", data, 62)
            return opcode, pair & 0xffffff, data[74:-4]
    return None, 0, b""

class Sender:
    """A connection that is asked for."""

    def __init__(self, name):
        global count
        self.name, self.id, self.other = name, count + 1, None
        request(private(qpn=0x1000 + self.id % 0x100000, extension=False), sender=name, mtu=1)

    def tell(self, attribute, more=b""):
        head = struct.pack("!BBBBHHQHHI", 1, 7, 2, 3, 0, 0, self.id, attribute, 0, 0)
        data = struct.pack("!II", self.id, self.other) + more
        send(head + data + bytes(232 - len(data)), source=self.name, source_qpn=1, to_qpn=1, key=0x80010000)

    def confirm(self, answer):
        self.other, = struct.unpack_from("!I", answer)
        self.qpn, self.number = (struct.unpack_from("!I", answer, at)[0] >> 8 for at in (12, 20))
        self.tell(CONFIRM)

    def post(self, opcode, message):
        s.send(packet(opcode, self.qpn, self.number, b"", message, gid, self.name, ask=True))

    def begin(self):
        """Begins a message. True: a buffer was taken for it."""
        for _ in range(5):
            self.post(SEND_FIRST, bytes(MTU))
            opcode, pair, body = receive(0.1)
            while opcode is not None and (opcode, pair) != (ACKNOWLEDGE, self.id & 0xffffff):
                opcode, pair, body = receive(0.1)
            if opcode is not None and body[0] >> 5 == 0:
                return True
        return False

    def send(self):
        """Sends a frame without waiting for anything."""
        ip = struct.pack("!BBHHHBBH", 0x45, 0, 28, 1, 0, 64, 253, 0) + socket.inet_aton("10.1.0.99") + socket.inet_aton("10.1.0.2")
        self.post(SEND_ONLY, struct.pack("!HH", 0x0800, 0) + ip + bytes(8))

    def end(self):
        self.tell(DISCONNECT, struct.pack("!I", self.qpn << 8))

def confirm(asked):
    """Waits for the answers, and confirms those that are no refusal; these connections."""
    waiting, confirmed = {one.id: one for one in asked}, []
    while waiting:
        opcode, _, body = receive(0.5)
        if opcode is None:
            break
        # Behind DETH and the header of the datagram.
        if opcode == DATAGRAM and len(body) >= 8 + 256 and body[25] in (REJECT, ANSWER):
            one = waiting.pop(struct.unpack_from("!I", body, 36)[0], None)
            if one and body[25] == ANSWER:
                one.confirm(body[32:])
                confirmed.append(one)
    return confirmed
