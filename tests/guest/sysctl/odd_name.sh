#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Gives ib0 a name that is no UTF-8, and its own one again.
# Argument: the directory of ib0 in debugfs.

set -e
debugfs=$1
odd=$(printf 'ib\377')

there() {
    [ "$(cat "/proc/sys/net/ipoib/$1/reorder_window")" = "$2" ]
    [ -e "$(dirname "$debugfs")/$(basename "$debugfs" | sed "s/^ib0/$1/")/paths" ]
}

there ib0 32
ip link set ib0 down
ip link set ib0 name "$odd"
there "$odd" 32
[ ! -e /proc/sys/net/ipoib/ib0 ]
[ ! -e "$debugfs" ]
echo 64 >"/proc/sys/net/ipoib/$odd/reorder_window"
ip -d link show "$odd" >/dev/null
ethtool -i "$odd" >/dev/null
ip link set "$odd" up
ip link set "$odd" down
ip link set "$odd" name ib0
there ib0 64
[ ! -e "/proc/sys/net/ipoib/$odd" ]
ip link set ib0 up
