#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Loads the module and unloads it, every fifth time with an ib0 that is up.
# Arguments: how often; the rest is what `ip link add name ib0` is told.

set -e
rounds=$1
shift
for round in $(seq "$rounds"); do
    modprobe ipoib_rs
    if [ $((round % 5)) = 0 ]; then
        ip link add name ib0 "$@"
        ip link set ib0 up
    fi
    modprobe -r ipoib_rs
    if ip link show ib0 2>/dev/null; then exit 1; fi
done
