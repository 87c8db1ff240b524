# SPDX-License-Identifier: GPL-2.0

# Loads a module from memory, with both link types: reading its file is not what is tried here.
# Follows each.py and a line that sets module, the path of the file.

image = open(module, "rb").read()
libc = ctypes.CDLL(None, use_errno=True)
load = lambda: libc.syscall(175, image, len(image), b"replace=1") and ctypes.get_errno()
unload = lambda error: undone(error, libc.syscall(176, b"ipoib_rs", 0))
each(load, unload)
