# SPDX-License-Identifier: GPL-2.0

# Takes messages of RDS at an address, and sends the length and the digest of each back.

import hashlib, socket, sys
s = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET)
s.bind((sys.argv[1], 4000))
print("ready", flush=True)
while True:
    data, sender = s.recvfrom(1 << 20)
    s.sendto(b"%d %s" % (len(data), hashlib.sha256(data).hexdigest().encode()), sender)
