#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Makes a disk in memory, and an NVMe target that serves it.
# Arguments: the transport, rdma or tcp; the target's IPv4 address; the disk's size in MiB.

nvmet=/sys/kernel/config/nvmet
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
modprobe null_blk nr_devices=0 && modprobe "nvmet-$1"
cd /sys/kernel/config/nullb && mkdir store
echo "$3" >store/size && echo 1 >store/memory_backed && echo 1 >store/power
cd $nvmet && mkdir subsystems/disk subsystems/disk/namespaces/1 ports/1
echo 1 >subsystems/disk/attr_allow_any_host
echo /dev/store >subsystems/disk/namespaces/1/device_path
echo 1 >subsystems/disk/namespaces/1/enable
cd ports/1 || exit
echo "$1" >addr_trtype && echo ipv4 >addr_adrfam && echo "$2" >addr_traddr && echo 4420 >addr_trsvcid
ln -s $nvmet/subsystems/disk subsystems/disk
