# SPDX-License-Identifier: GPL-2.0

# Arguments: an address, how often, and a list of connections. Has one to the address, an answer through
# it, and none any more.

import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 5011))
s.settimeout(1)

def mode(name):
    with open("/sys/class/net/ib0/mode", "w") as file:
        file.write(name)

def is_up():
    with open(sys.argv[3]) as file:
        return any(line.split()[3] == "up" for line in file)

def answered():
    try:
        s.send(b"?")
        return s.recv(2048) == b"?"
    except OSError:
        return False

for _ in range(int(sys.argv[2])):
    mode("connected")
    if not any(answered() and is_up() or time.sleep(0.01) for _ in range(500)):
        sys.exit("no connection")
    if not any(answered() for _ in range(5)):
        sys.exit("no answer")
    mode("datagram")
