# SPDX-License-Identifier: GPL-2.0

# Makes a user without any privilege of the program, before that opens a device.

import os
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
