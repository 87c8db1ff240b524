#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Makes a bond, and two fabrics with cables through it, of which the first one is live.
# Arguments: the directory of fabrics in configfs and the HCA of ib0.

set -e
ip link add name ib0 type ipoib_rs device "$2"
ip link add bond0 mtu 1500 type bond mode active-backup fail_over_mac active
ip link set bond0 up
cd "$1"
for fabric in far next; do
    mkdir $fabric $fabric/hcas/f $fabric/cables/trunk
    echo 1024 >$fabric/hcas/f/mtu
    echo f dev:bond0 >$fabric/cables/trunk/ends
done
echo 1 >far/live
