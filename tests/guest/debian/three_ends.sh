#!/bin/bash
# SPDX-License-Identifier: GPL-2.0

# Runs a program, which is its arguments, three times: in a cache that is too small, in one that is full before it is done,
# and until it is killed. Says how each ended. Then there is room, and a fourth time is for the caller.
# Arguments: the program, --cache, and the cache; the rest is the program's.

cache=$3
mount -t tmpfs -o size=100M tmpfs "$cache"
"$@"; echo too small: $?
mount -o remount,size=1400M "$cache"
(sleep 10; cat /dev/zero >"$cache/file") 2>/dev/null &
"$@"; echo full: $?
wait; rm "$cache/file"
mount -o remount,size=4G "$cache"
timeout -s KILL 20 "$@"; echo killed: $?
exec "$@"
