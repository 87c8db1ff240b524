# SPDX-License-Identifier: GPL-2.0

# Changes the mode of an interface that is up, from one to the other and back. Afterwards it has to be in the mode that
# the answer says, with the MTU and the carrier that it had, and reach its peer. Follows each.py and a line that sets peer,
# an address.

import subprocess
DEVICE = "/sys/class/net/ib0/"

def read(name):
    return open(DEVICE + name).read().strip()

def wait(done, what):
    end = time.monotonic() + 20
    while not done():
        if time.monotonic() > end:
            sys.exit(f"{what}: mode {read('mode')}, carrier {read('carrier')}")
        time.sleep(0.01)

def reaches():
    return subprocess.run(["ping", "-q", "-c", "1", "-W", "1", peer], capture_output=True).returncode == 0

def change(to):
    os.pwrite(file, to, 0)
    return 0

def settle(error):
    expected = before if error else after
    if read("mode") != expected.decode():
        sys.exit(f"mode {read('mode')} after error {error}")
    if read("mtu") != mtu:
        sys.exit(f"MTU {read('mtu')} after error {error}")
    wait(lambda: read("carrier") == "1", "no carrier")
    wait(reaches, "no peer")
    if not error:
        change(before)
        wait(lambda: read("carrier") == "1", "no carrier on the way back")
        wait(reaches, "no peer on the way back")

file = os.open(DEVICE + "mode", os.O_WRONLY)
mtu = read("mtu")
for before, after in [(b"datagram", b"connected"), (b"connected", b"datagram")]:
    if read("mode") != before.decode():
        change(before)
    settle(1)
    each(lambda: change(after), settle)
