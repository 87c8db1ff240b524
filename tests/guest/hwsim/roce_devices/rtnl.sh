#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Has each interface send something, waits until all have restarted, and prints the longest wait for RTNL meanwhile, in ms.
# The last interface is deleted as soon as the first one has restarted.

set -e
cd /sys/class/net
for dev in ib*; do
    net=10.9.${dev#ib}
    ip addr add "$net.1/24" dev "$dev"
    ping -q -c 1 -W 1 "$net.2" >/dev/null || true
done
longest=0
for dev in $(echo ib* | sed "s/ *$1//"); do
    restarted=
    until [ "$restarted" ]; do
        begin=$(date +%s%3N)
        restarted=$(ethtool -S "$dev" | grep ' restarts: [1-9]' || true)
        time=$(($(date +%s%3N) - begin))
        if [ "$time" -gt "$longest" ]; then longest=$time; fi
    done
    if [ "$dev" = ib0 ]; then ip link del "$1"; fi
done
echo "$longest"
