#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Makes a disk in memory, and an iSCSI target that serves it over RDMA, to everybody.
# Arguments: the target's name and its IPv4 address.

set -e
modprobe target_core_mod
modprobe iscsi_target_mod
modprobe ib_isert
core=/sys/kernel/config/target/core/rd_mcp_0/disk
group=/sys/kernel/config/target/iscsi/$1/tpgt_1
mkdir -p "$core"
echo rd_pages=8192 >"$core/control"
echo 1 >"$core/enable"
mkdir -p "$group/lun/lun_0" "$group/np/$2:3260"
ln -s "$core" "$group/lun/lun_0/disk"
echo 1 >"$group/np/$2:3260/iser"
for attribute in authentication=0 demo_mode_write_protect=0 generate_node_acls=1 cache_dynamic_acls=1; do
    echo "${attribute#*=}" >"$group/attrib/${attribute%=*}"
done
echo 1 >"$group/enable"
