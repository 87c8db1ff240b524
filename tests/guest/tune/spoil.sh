#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Gives ib0 and its child settings that nobody should have.

set -e
for i in ib0 ib0.8001; do
    echo connected >/sys/class/net/$i/mode
    ip link set $i mtu 65520
    ethtool -C $i rx-usecs 1000 rx-frames 64
    ethtool -K $i gso off
    sysctl -qw net/ipoib/$i/icrc=0 net/ipoib/$i/reorder_window=8 net/ipoib/$i/reorder_timeout_us=9000
done
echo datagram >/sys/class/net/ib0.8001/mode
sysctl -qw net/ipv4/tcp_delack_min_us=30000 net/core/rmem_max=212992 net/core/wmem_max=212992
sysctl -qw net/ipv4/tcp_rmem='4096 131072 1048576' net/ipv4/tcp_wmem='4096 16384 1048576'
