# SPDX-License-Identifier: GPL-2.0

# One that has a queue pair of the victim's connected again. Two more arguments: the GUID of its node, and the number.

request(private(), node=int(sys.argv[3].replace(":", ""), 16), pair=int(sys.argv[4]))
