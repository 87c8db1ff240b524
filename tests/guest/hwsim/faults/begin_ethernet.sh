#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Makes two HCAs with Ethernet ports back to back, which are off, and loads this checkout's driver to use them.

set -e
ip link add e0 mtu 4400 type veth peer name e1 mtu 4400
ip link set e0 up
ip link set e1 up
modprobe ipoib_rs
modprobe ib_hwsim
mount -t configfs configfs /sys/kernel/config
cd /sys/kernel/config/ib_hwsim
mkdir x x/hcas/a x/hcas/b x/cables/c
cd x
for hca in a b; do
    echo 1 >hcas/$hca/pkeys
done
echo e0 >hcas/a/netdev
echo e1 >hcas/b/netdev
echo a/1 b/1 >cables/c/ends
