#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Switches the fabric of 64 HCAs on, and off again, in the background; each time, somebody has to see its first HCA on while
# it is not live yet, and its last one off while it still is.

# Switches the fabric to $1; fails unless HCA $2 is seen to follow before the fabric has.
switch_and_see() {
    to=$1 hca=$2 seen=
    echo "$to" >live &
    until [ "$(cat live)" = "$to" ]; do
        if [ "$(cat "hcas/$hca/power")" = "$to" ] && [ "$(cat live)" != "$to" ]; then seen=1; fi
    done
    wait
    [ "$seen" ]
}

set -e
cd /sys/kernel/config/ib_hwsim/star
echo 0 >live
switch_and_see 1 h1
switch_and_see 0 h64
