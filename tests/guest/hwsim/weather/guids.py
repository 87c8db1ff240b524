# SPDX-License-Identifier: GPL-2.0

# Sets the second entry of the own port's GUIDs, as a subnet manager would. Follows umad.py; the argument behind the HCA
# is the GUID.

block = struct.pack("!QQ", 0, int(sys.argv[2], 0))
request = mad(0x81, 2, 0x14, body=directed(block, ()))
status, answer = exchange(fd, envelope(smi, timeout=2000, retries=3) + request, 20)
if status or struct.unpack_from("!H", answer, 4)[0] & 0x7fff:
    sys.exit("refused: %d, %s" % (status, answer[:24].hex()))
