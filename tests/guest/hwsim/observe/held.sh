#!/bin/sh
# SPDX-License-Identifier: GPL-2.0

# Takes a fabric down whose files are open, and others read; then the open ones have nothing to say, and hold the module.
# Arguments: the directory of fabrics in debugfs; and whether to unload the module then, 0 or 1.

exec 3<"$1/pair/h1/port1" 4<"$1/pair/h2/qps"
head -c 10 <&3 >/dev/null
for _ in 1 2; do
    (while cat "$1"/pair/h2/*; do :; done) >/dev/null 2>&1 &
done
ib-hwsim down || exit 1
wait
cat <&3 && exit 2
cat <&4 && exit 3
modprobe -r ib_hwsim 2>/dev/null && exit 4
ls "$1/pair" 2>/dev/null && exit 5
exec 3<&- 4<&-
[ "$2" = 0 ] || modprobe -r ib_hwsim || exit 6
echo fine
