#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Prints the counters of each interface of the driver, in all network namespaces, those without a name included, and the
# queue pairs that are in error: the driver's own, and the connection manager's, without which there are no connections.

[ -d /sys/module/ipoib_rs ] || exit 0

# $1: the namespace's name, of the inner shell.
# shellcheck disable=SC2016
read='
for directory in /proc/sys/net/ipoib/*/; do
	[ -d "$directory" ] || continue
	name=$(basename "$directory")
	echo "interface $1$name"
	ethtool -S "$name" || exit
done
pairs=$(rdma resource show qp) || exit
echo "$pairs" | sed -n "/ state ERR /{/\\[ipoib_rs\\]\\|type GSI/s/^/error /p}"
'

# Those with a name come first, and each once.
stat -L -c '%i %n' /run/netns/* /proc/[0-9]*/ns/net 2>/dev/null | sort -s -u -k 1,1 | while read -r inode file; do
	case $file in
	/run/netns/*) name=${file##*/}/ ;;
	/proc/1/*) name= ;;
	*) name=$inode/ ;;
	esac
	nsenter --net="$file" sh -c "$read" sh "$name" || exit
done
