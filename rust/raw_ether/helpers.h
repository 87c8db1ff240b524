/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros of the network core that the raw_ether crate calls.
 */
#ifndef RAW_ETHER_HELPERS_H
#define RAW_ETHER_HELPERS_H

#include <linux/netdevice.h>
#include <linux/skbuff.h>

struct net_device *raw_ether_find(const char *name);
void raw_ether_put(struct net_device *dev);
bool raw_ether_is_ethernet(const struct net_device *dev);
bool raw_ether_is_taken(struct net_device *dev, u16 type, const struct packet_type *pt);
bool raw_ether_is_ready(const struct net_device *dev);
u32 raw_ether_mtu(const struct net_device *dev);
struct sk_buff *raw_ether_alloc(u32 len, u8 **bytes);
void raw_ether_drop(struct sk_buff *skb);
void raw_ether_consume(struct sk_buff *skb);
bool raw_ether_send(struct net_device *dev, struct sk_buff *skb, u16 type, const u8 *to);
struct sk_buff *raw_ether_take(struct sk_buff *skb);
const u8 *raw_ether_source(const struct sk_buff *skb);
const u8 *raw_ether_broadcast(const struct net_device *dev);
void raw_ether_packet_type(struct packet_type *pt, struct net_device *dev, u16 type);

#endif
