# SPDX-License-Identifier: GPL-2.0
# Sends the kernel's log by a network interface: its name, its address, and that of the receiver.
set -e
modprobe netconsole
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
target=/sys/kernel/config/netconsole/lab
mkdir $target
trap 'rmdir $target' EXIT
echo "$1" >$target/dev_name
echo "$2" >$target/local_ip
echo "$3" >$target/remote_ip
echo 1 >$target/enabled
echo 0 >$target/enabled
