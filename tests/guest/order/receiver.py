# SPDX-License-Identifier: GPL-2.0

# Receives the datagrams of sender.py until none comes for two seconds, and prints a summary.

import hashlib, json, socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
s.bind(('', 5001))
print('ready', flush=True)
s.settimeout(30)
seen, highest, inverted, twice, bad, trail = set(), -1, 0, 0, 0, hashlib.sha256()
try:
    while True:
        body = s.recv(65536)
        s.settimeout(2)
        n = int.from_bytes(body[:8], 'big')
        bad += body[8:] != hashlib.sha256(body[:8]).digest() * 20
        twice += n in seen
        inverted += n < highest and n not in seen
        seen.add(n)
        highest = max(highest, n)
        trail.update(body[:8])
except socket.timeout:
    pass
print(json.dumps({'received': len(seen), 'inverted': inverted, 'twice': twice, 'bad': bad, 'trail': trail.hexdigest()}))
