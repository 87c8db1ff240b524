# SPDX-License-Identifier: GPL-2.0

# Asks for a connection as another driver does, which knows no numbers, and sends frames by it with something in the reserved
# field. Follows senders.py.

one, = confirm([Sender(names[0])])
ip = struct.pack("!BBHHHBBH", 0x45, 0, 28, 1, 0, 64, 253, 0) + socket.inet_aton("10.1.0.99") + socket.inet_aton("10.1.0.2")
for reserved in (1, 2, 9, 5, 40000, 7):
    one.post(SEND_ONLY, struct.pack("!HH", 0x0800, reserved) + ip + bytes(8))
    one.number = (one.number + 1) & 0xffffff
    # The next one would be out of order.
    opcode, pair, _ = receive(1)
    while opcode is not None and (opcode, pair) != (ACKNOWLEDGE, one.id & 0xffffff):
        opcode, pair, _ = receive(1)
print("sent", flush=True)
