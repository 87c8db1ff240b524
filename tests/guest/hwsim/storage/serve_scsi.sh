#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Makes a disk in memory, and a SCSI target that serves it, with one receive queue for all initiators. ib_srpt knows
# both ends by the GUIDs of their ports.
# Arguments: the directory of targets in configfs, the identifier of the target, and the HCAs of the initiator and the target.

set -e

own() {
    cut -d: -f5-8 "/sys/class/infiniband/$1/ports/1/gids/0"
}

modprobe ib_srpt srpt_service_guid="0x$2"
guid=$(own "$4")
target=$1/srpt/$guid/$guid
mkdir -p "$target"
cd "$target"
guest=acls/$(own "$3")
disk=$1/core/rd_mcp_0/disk
mkdir -p "$disk"
echo rd_pages=8192 >"$disk/control"
echo 1 >"$disk/enable"
mkdir lun/lun_0
ln -s "$disk" lun/lun_0/disk
mkdir "$guest" "$guest/lun_0"
ln -s "$target/lun/lun_0" "$guest/lun_0/lun"
echo 1 >attrib/use_srq
echo 1 >enable
