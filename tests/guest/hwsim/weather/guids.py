# SPDX-License-Identifier: GPL-2.0

# Sets the own port's GUIDs from the second entry on, as a subnet manager would. Follows umad.py; the arguments behind the
# HCA are the GUIDs.

guids = [int(guid, 0) for guid in sys.argv[2:]]
block = struct.pack("!Q%dQ" % len(guids), 0, *guids)
request = mad(0x81, 2, 0x14, body=directed(block, ()))
status, answer = exchange(fd, envelope(smi, timeout=2000, retries=3) + request, 20)
if status or struct.unpack_from("!H", answer, 4)[0] & 0x7fff:
    sys.exit("refused: %d, %s" % (status, answer[:24].hex()))
