# SPDX-License-Identifier: GPL-2.0

# Sends 256 bytes again and again, with the Q_Key of QP1. Arguments: the HCA, and of each packet LID, queue pair and
# how often.

for way in sys.argv[2:]:
    lid, qpn, n = [int(word, 0) for word in way.split(",")]
    for _ in range(n):
        os.write(fd, envelope(gsi, qpn=qpn, lid=lid) + mad(4, 0x81, 1))
