# SPDX-License-Identifier: GPL-2.0

# Messages that make no sense, and a good one, fewer than it may send: prints how many are too short, of a
# type that there is not, extended and wrong.

extended = struct.pack("!HH", 0x0101, 0)
short = [bytes(n) for n in range(4)] + [good[:4], extended, extended + bytes(11)]
unknown = [struct.pack("!HH", t, 0) + bytes(40) for t in (0, 0x88cc, 0xffff)]
# Types next to ours.
unknown += [struct.pack("!HHI", 0x0106, 0, 0x777) + os.urandom(n) for n in (0, 7, 8, 9, 1000)]
tcp = bytes((1, 1, 5, 168, 0, 20, 0, 16, 8, 0, 0, 0))
wrong = [extended + bytes(12) + b"\0", extended + tcp + ip, extended + b"\xff" + tcp[1:] + ip + bytes(40)]
wrong += [extended + os.urandom(n) for n in (12, 60, 1000, 4000)]
# Credit limits, which are not for a peer that sends to advertise.
wrong += [extended + bytes(10) + os.urandom(2) for _ in range(3)]
# The compact form of what is neither TCP nor UDP.
wrong += [struct.pack("!HH", t, 0) + packet for t in range(0x0102, 0x0106) for packet in (b"", ip + bytes(8))]
messages = short + unknown + wrong
random.shuffle(messages)
assert len(messages) + 1 < window, window
for message in messages:
    post(message)
    acknowledge(0)
post(good)
print("sent", len(short), len(unknown), len(wrong), flush=True)
acknowledge(5)
