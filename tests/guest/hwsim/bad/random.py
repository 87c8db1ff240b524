# SPDX-License-Identifier: GPL-2.0

# Writes random bytes to random attributes, and makes and removes random items, so often.

import os, random, sys
random.seed(1415)
os.chdir(sys.argv[1])
NAMES = ["a", "b", "s", "c", "h1", "x" * 32, "x" * 33, "%s", "a/1", "."]
ITEMS = [(group, name) for group in ("hcas", "switches", "cables") for name in NAMES]
ATTRIBUTES = ["ports", "node_guid", "mtu", "pkeys", "gids", "max_qp", "max_cq", "max_cqe", "multicast", "lso", "power", "ends", "plugged", "width", "speed"]
TEXTS = ["0", "1", "2", "36", "64", "128", "4096", "0x1", "a/1 b/1", "a/1 s/1", "b/1 s/2", "s/3 s/4", "4x", "qdr", ""]
done = 0
for _ in range(int(sys.argv[2])):
    group, name = random.choice(ITEMS)
    try:
        kind = random.randrange(12)
        if kind == 0:
            os.mkdir(group + "/" + name)
        elif kind == 1 and random.randrange(4) == 0:
            os.rmdir(group + "/" + name)
        else:
            path = "live" if kind == 2 else group + "/" + name + "/" + random.choice(ATTRIBUTES)
            text = random.choice(TEXTS).encode()
            if kind < 6:
                text = random.randbytes(random.choice((0, 1, 5, 100, 4095, 5000)))
            elif kind < 8 and text:
                text = bytearray(text)
                text[random.randrange(len(text))] ^= 1 << random.randrange(8)
            fd = os.open(path, os.O_WRONLY)
            try:
                os.write(fd, text)
            finally:
                os.close(fd)
        done += 1
    except (OSError, ValueError):
        pass
print(done)
