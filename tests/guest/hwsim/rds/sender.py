# SPDX-License-Identifier: GPL-2.0

# Sends messages of RDS from an address to another one; the answers have to come in order, and to say what was sent.

import hashlib, os, socket, sys
source, target = sys.argv[1:]
s = socket.socket(socket.AF_RDS, socket.SOCK_SEQPACKET)
s.bind((source, 4001))
s.settimeout(60)
for size in [1, 100, 4000, 4096, 4097, 8192, 40000, 65536, 100000] * 20:
    data = os.urandom(size)
    s.sendto(data, (target, 4000))
    answer, _ = s.recvfrom(1 << 20)
    wanted = b"%d %s" % (size, hashlib.sha256(data).hexdigest().encode())
    if answer != wanted:
        sys.exit(f"{answer} instead of {wanted}")
print("done")
