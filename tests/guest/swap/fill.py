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
    """Bytes that this host has swapped out so far."""
    with open("/proc/vmstat") as file:
        pages = next(line for line in file if line.startswith("pswpout "))
    return int(pages.split()[1]) * mmap.PAGESIZE


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
