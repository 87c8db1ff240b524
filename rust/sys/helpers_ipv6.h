/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The IPv6 configuration of an IPoIB interface.
 */
#ifndef IPOIB_RS_HELPERS_IPV6_H
#define IPOIB_RS_HELPERS_IPV6_H

#include <linux/netdevice.h>

bool ipoib_rs_ipv6_distinguish(struct net_device *dev, bool random);

#endif
