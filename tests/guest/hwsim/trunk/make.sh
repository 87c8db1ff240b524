#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Makes a veth pair and a fabric at either end of it: hwsim0 is the HCA of the first one, which has a switch as well, and
# hwsim1 that of the second.
# Arguments: the directory of fabrics in configfs and the MTU of the pair.

set -e
ip link add t0 mtu "$2" type veth peer name t1 mtu "$2"
ip link set t0 up
ip link set t1 up
ib-hwsim down
[ -d "$1" ] || modprobe ib_hwsim
[ -d "$1" ] || mount -t configfs configfs /sys/kernel/config
cd "$1"
mkdir left left/hcas/a left/switches/s left/cables/c left/cables/trunk
echo a s/1 >left/cables/c/ends
echo s/2 dev:t0 >left/cables/trunk/ends
echo 1 >left/live
mkdir right right/hcas/b right/cables/trunk
echo b dev:t1 >right/cables/trunk/ends
echo 1 >right/live
