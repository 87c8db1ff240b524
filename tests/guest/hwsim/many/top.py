# SPDX-License-Identifier: GPL-2.0
# Runs "ipoibctl top" of the first host on a terminal of 80 columns and 24 lines, and says how many bytes it draws and what
# share of a CPU it takes in each of a few periods. The argument is the program.
import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time

TOOL = sys.argv[1]
BEGIN, PERIOD, PERIODS = 5.0, 10.0, 3


def ticks(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


def watch(screen, seconds):
    """Takes what is drawn; its length."""
    end, drawn = time.monotonic() + seconds, 0
    while (rest := end - time.monotonic()) > 0:
        if select.select([screen], [], [], rest)[0]:
            drawn += len(os.read(screen, 65536))
    return drawn


pid, screen = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    mounted = "mount -t debugfs none /sys/kernel/debug && sleep 0.2 && exec "
    os.execvp("ip", ["ip", "netns", "exec", "h1", "sh", "-c", f"{mounted}{TOOL} top"])
fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
watch(screen, BEGIN)
drawn, shares = 0, []
for _ in range(PERIODS):
    before = ticks(pid)
    drawn += watch(screen, PERIOD)
    shares.append((ticks(pid) - before) / os.sysconf("SC_CLK_TCK") / PERIOD)
os.write(screen, b"q")
# Or it might wait for somebody who reads.
try:
    watch(screen, 1)
except OSError:
    pass
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) in (0, 1)
print(drawn, *shares)
