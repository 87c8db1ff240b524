// SPDX-License-Identifier: GPL-2.0

//! Command lines of users that plans have. They run in a host's namespace, where `i` is the interface and `h` the host.

/// Questions, and requests that change nothing for long or are refused.
pub(crate) const QUESTIONS: [&str; 42] = [
    "ethtool -S $i",
    "ethtool -i $i",
    "ethtool $i",
    "ethtool -k $i",
    "ethtool -g $i",
    "ethtool -c $i",
    "ethtool -l $i",
    "ethtool -T $i",
    "ip -d -s link show $i",
    "ip maddr show dev $i",
    "ip -s neigh show dev $i",
    "cat /run/debug/ipoib_rs/*/*",
    "grep -r . /sys/class/net/$i/ -s -m 1 --exclude-dir=device --exclude-dir=power",
    "grep -r . /proc/sys/net/ipoib",
    "rdma resource show qp",
    "rdma statistic show",
    "ip link add link $i name bad type ipoib_rs pkey 0x8009 && ip link del bad",
    "ip link add link $i name bad type ipoib_rs pkey 0x0000 && ip link del bad",
    "ip link add bad type ipoib_rs device none && ip link del bad",
    "ip link add bad type ipoib_rs device hca$h port 9 && ip link del bad",
    "ip link add bad type ipoib_rs && ip link del bad",
    "ip link add link lo name bad type ipoib_rs && ip link del bad",
    "ip link add name bad mtu 70000 type ipoib_rs device hca$h mode connected && ip link del bad",
    "ip link set $i type ipoib_rs port 2",
    "ip link set $i type ipoib_rs pkey 0x8001",
    "ip link set $i mtu 70000",
    "ip link set $i mtu 100",
    "ethtool -G $i rx 100",
    "echo 0x8009 >/sys/class/net/$i/create_child; echo 0x8009 >/sys/class/net/$i/delete_child",
    "echo 0x7fff >/sys/class/net/$i/delete_child",
    "echo something >/sys/class/net/$i/mode",
    "ip link set $i vf 0 node_guid 00:11:22:33:44:55:66:77",
    "ip link add bad type ipoib_rs port 1 && ip link del bad",
    "ip link add link ib0.8001 name bad type ipoib_rs pkey 0x8003 && ip link del bad",
    "ip link add link $i name bad type ipoib_rs device hca9 pkey 0x8003 && ip link del bad",
    "ip link add name bad mtu 50 type ipoib_rs device hca$h && ip link del bad",
    "ip link add bad type ipoib_rs device hca$((h % 2 + 1)) && ip link del bad",
    "ethtool -G $i rx 8192 tx 8192 && ethtool -G $i rx 512 tx 512",
    "ethtool -C $i rx-usecs 4000000000",
    "echo 1000 >/proc/sys/net/ipoib/$i/reorder_window",
    "ethtool -A $i rx on",
    concat!(
        "python3 - $i <<'END'\n",
        include_str!("../../../tests/guest/accounts/genl.py"),
        "END"
    ),
];

/// Requests, and what takes them back.
pub(crate) const REQUESTS: [(&str, &str); 16] = [
    (
        "ethtool -C $i rx-usecs 20 rx-frames 8",
        "ethtool -C $i rx-usecs 0 rx-frames 0",
    ),
    ("ethtool -K $i gro off", "ethtool -K $i gro on"),
    ("ethtool -K $i tso off", "ethtool -K $i tso on"),
    ("ethtool -K $i sg off", "ethtool -K $i sg on"),
    ("ethtool -K $i rx off", "ethtool -K $i rx on"),
    ("ethtool -K $i tx off", "ethtool -K $i tx on"),
    ("ip link set $i promisc on", "ip link set $i promisc off"),
    (
        "ip link set $i allmulticast on",
        "ip link set $i allmulticast off",
    ),
    (
        "ip link set $i type ipoib_rs umcast 1",
        "ip link set $i type ipoib_rs umcast 0",
    ),
    (
        "echo 1 >/sys/class/net/$i/umcast",
        "echo 0 >/sys/class/net/$i/umcast",
    ),
    (
        "ip link set $i txqueuelen 3",
        "ip link set $i txqueuelen 1000",
    ),
    (
        "tc qdisc replace dev $i root fq",
        "tc qdisc del dev $i root",
    ),
    (
        "echo 0x8001 >/sys/class/net/$i/create_child",
        "echo 0x8001 >/sys/class/net/$i/delete_child",
    ),
    (
        "echo connected >/sys/class/net/$i/mode",
        "echo datagram >/sys/class/net/$i/mode",
    ),
    (
        "echo 2 >/sys/class/net/$i/napi_defer_hard_irqs; echo 200000 >/sys/class/net/$i/gro_flush_timeout",
        "echo 0 >/sys/class/net/$i/napi_defer_hard_irqs; echo 0 >/sys/class/net/$i/gro_flush_timeout",
    ),
    (
        "echo 1 >/sys/class/net/$i/threaded",
        "echo 0 >/sys/class/net/$i/threaded",
    ),
];

/// Options of the module, some of which are invalid.
pub(crate) const OPTIONS: [&str; 9] = [
    "replace=1",
    "replace=2",
    "ports=all",
    "ports=hca1:1",
    "ports=hca1:",
    "recv_queue_size=100",
    "rc_recv_queue_size=5",
    "recv_queue_size=64 send_queue_size=64 rc_recv_queue_size=64",
    "qkey=0x1b",
];

/// Requests about the Ethernet interface of a RoCE port, and what takes them back.
pub(crate) const ETHERNET: [(&str, &str); 7] = [
    ("ip link set eth0 down", "ip link set eth0 up"),
    ("ip link set eth0 mtu 1500", "ip link set eth0 mtu 4200"),
    (
        "ip addr replace 192.0.2.$h/24 dev eth0",
        "ip addr del 192.0.2.$h/24 dev eth0",
    ),
    (
        "ip addr replace fd00:99::$h/64 dev eth0 nodad",
        "ip addr del fd00:99::$h/64 dev eth0",
    ),
    (
        "ip addr replace 192.0.2.$h/24 dev eth0; ip link set eth0 addrgenmode none; ip -6 addr flush dev eth0",
        "ip addr del 192.0.2.$h/24 dev eth0; ip link set eth0 addrgenmode eui64; ip link set eth0 down; ip link set eth0 up",
    ),
    (
        "ip -6 addr flush dev eth0",
        "ip link set eth0 down; ip link set eth0 up",
    ),
    (
        "ip link set eth0 address 02:00:00:00:77:0$h",
        "ip link set eth0 address 02:00:00:00:00:0$h",
    ),
];

/// Gives an interface the GUID that [`Act::Guids`](crate::plan::Act::Guids) gives its port, and that which the port has of its
/// own.
pub(crate) const GUID: (&str, &str) = (
    "a=$(cat /sys/class/net/$i/address)
     ip link set $i down
     ip link set $i address ${a%:??:??:??:??:??:??:??:??}:02:00:5e:ff:fe:00:53:0$h
     ip link set $i up",
    "a=$(cat /sys/class/net/$i/address)
     g=$(cut -d: -f 5- /sys/class/infiniband/hca$h/ports/1/gids/0 | sed 's/[0-9a-f][0-9a-f]/&:/g; s/::/:/g; s/:$//')
     ip link set $i down
     ip link set $i address ${a%:??:??:??:??:??:??:??:??}:$g
     ip link set $i up",
);

/// Gives an interface the scope 5, which no group has, and the usual one.
pub(crate) const SCOPE: (&str, &str) = (
    "b=$(cat /sys/class/net/$i/broadcast); ip link set $i broadcast ${b%%:12:40:*}:15:40:${b#*:12:40:}",
    "b=$(cat /sys/class/net/$i/broadcast); ip link set $i broadcast ${b%%:15:40:*}:12:40:${b#*:15:40:}",
);
