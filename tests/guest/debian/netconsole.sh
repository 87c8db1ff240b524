#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# Begins to send the kernel's log by a network interface, and ends that at once. Arguments: the interface, its address, the
# receiver's address.
set -e
modprobe netconsole
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
target=/sys/kernel/config/netconsole/lab
mkdir "$target"
trap 'rmdir "$target"' EXIT
echo "$1" >"$target/dev_name"
echo "$2" >"$target/local_ip"
echo "$3" >"$target/remote_ip"
echo 1 >"$target/enabled"
echo 0 >"$target/enabled"
