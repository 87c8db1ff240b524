#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Switches the fabric of 64 HCAs on, and off again, in the background; each time, somebody has to see its first HCA on while
# it is not live yet, and its last one off while it still is.

set -e
cd /sys/kernel/config/ib_hwsim/star
echo 0 >live
seen=
echo 1 >live &
until [ "$(cat live)" = 1 ]; do
    if [ "$(cat hcas/h1/power)" = 1 ] && [ "$(cat live)" = 0 ]; then seen=1; fi
done
wait
[ "$seen" ]
seen=
echo 0 >live &
until [ "$(cat live)" = 0 ]; do
    if [ "$(cat hcas/h64/power)" = 0 ] && [ "$(cat live)" = 1 ]; then seen=1; fi
done
wait
[ "$seen" ]
