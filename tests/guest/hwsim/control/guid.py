# SPDX-License-Identifier: GPL-2.0

# Asks the subnet's administrator to give a port a second GUID, or to take it away: SubnAdmSet() or SubnAdmDelete() of a
# GUIDInfoRecord. Follows umad.py; the arguments behind the HCA are the port's LID, the administrator's, the method and
# the GUID.

lid, sm_lid, method, guid = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5], 0)
# The LID, the block, and the second GUID in it.
mask = 1 << 0 | 1 << 1 | 1 << 5
record = struct.pack("!HBBIQQ", lid, 0, 0, 0, 0, guid)
body = bytes(12) + struct.pack("!QHHQ", 0, 0, 0, mask) + record
request = mad(3, {"set": 0x02, "delete": 0x15}[method], 0x30, body=body, version=2)
target = envelope(gsi, qpn=1, qkey=0x80010000, lid=sm_lid, timeout=2000, retries=3)
status, answer = exchange(fd, target + request, 20)
result = struct.unpack_from("!H", answer, 4)[0] if len(answer) >= 256 else None
if status or result != 0:
    sys.exit("no success: %d, %s" % (status, result))
