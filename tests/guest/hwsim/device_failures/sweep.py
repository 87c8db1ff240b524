# SPDX-License-Identifier: GPL-2.0

# Gives an HCA each rule, switches it on, brings its interface up and down, and switches it off, whatever fails.
# Prints the rules as they are then, and what was switched on.

import subprocess, sys, time
hca, cable, *rules = sys.argv[1:]
def write(path, text):
    try:
        with open(path, "w") as file:
            file.write(text)
        return "ok"
    except OSError as e:
        return e.strerror
def link(state):
    return subprocess.run(["ip", "link", "set", "ib0", state], capture_output=True, timeout=60).returncode
for rule in rules:
    assert write(hca + "/faults", "clear\n" + rule) == "ok", rule
    on = write(hca + "/power", "1")
    plug = write(cable + "/plugged", "1")
    up = link("up")
    # Frames of the interface wait until the port is active.
    for _ in range(1000):
        if " at 1 " not in rule + " " or "struck 0" not in open(hca + "/faults").read():
            break
        time.sleep(0.01)
    for _ in range(30):
        if up or open("/sys/class/net/ib0/carrier").read() == "1\n":
            break
        time.sleep(0.01)
    if up == 0:
        link("down")
    write(hca + "/power", "0")
    print(open(hca + "/faults").read().strip(), "|", on, plug, up, flush=True)
write(hca + "/faults", "clear")
