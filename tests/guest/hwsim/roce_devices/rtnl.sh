#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Has each interface send something, waits until all have restarted since, and says for how many milliseconds RTNL was not to be
# had at most meanwhile.

set -e
cd /sys/class/net
for dev in ib*; do ping -q -c 1 -W 1 "ff02::1%$dev" >/dev/null || true; done
longest=0
for dev in ib*; do
    restarted=
    until [ "$restarted" ]; do
        begin=$(date +%s%3N)
        restarted=$(ethtool -S "$dev" | grep ' restarts: [1-9]' || true)
        time=$(($(date +%s%3N) - begin))
        if [ "$time" -gt "$longest" ]; then longest=$time; fi
    done
done
echo "$longest"
