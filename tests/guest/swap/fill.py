# SPDX-License-Identifier: GPL-2.0

"""Fills memory until enough of it was swapped, and finds in each page what was written.

Argument: how many MiB are to be swapped.
"""

import mmap
import struct
import sys

STEP = 8 << 20
ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def swapped():
    """Bytes of swap that are in use. Pages take them before they are written, which may take long."""
    with open("/proc/meminfo") as file:
        sizes = dict(line.split(":") for line in file)
    total, free = (int(sizes[name].split()[0]) for name in ("SwapTotal", "SwapFree"))
    return (total - free) * 1024


wanted = swapped() + (int(sys.argv[1]) << 20)
steps = []
while swapped() < wanted:
    memory = mmap.mmap(-1, STEP, flags=ANONYMOUS)
    for page in range(0, STEP, mmap.PAGESIZE):
        struct.pack_into("<QQ", memory, page, len(steps), page)
    steps.append(memory)
for number, memory in enumerate(steps):
    for page in range(0, STEP, mmap.PAGESIZE):
        found = struct.unpack_from("<QQ", memory, page)
        if found != (number, page):
            sys.exit(f"step {number}, page at {page}: {found}")
print(len(steps))
