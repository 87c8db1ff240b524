# SPDX-License-Identifier: GPL-2.0

# Makes the first slab allocation of a system call fail, then the second, and so on until it makes
# fewer. Nothing else of the process is touched: a file system that cannot read a library
# would be the end of the host.

import ctypes, fcntl, os, socket, struct, sys, time
nth = os.open("/proc/thread-self/fail-nth", os.O_RDWR)

def undone(error, result):
    # A failed attempt may have left nothing to undo.
    if result != 0 and error == 0:
        sys.exit(f"cannot be undone: {result}")

def each(attempt, undo):
    n = refused = 0
    while True:
        n += 1
        os.pwrite(nth, b"%d" % n, 0)
        try:
            error = attempt()
        except OSError as failure:
            error = failure.errno
        # 0 where the fault has struck.
        left = os.pread(nth, 16, 0)
        os.pwrite(nth, b"0", 0)
        refused += error != 0
        undo(error)
        if int(left) != 0:
            break
    print(n - 1, refused)
