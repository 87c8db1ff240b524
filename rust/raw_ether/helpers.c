// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros of the network core that the raw_ether crate calls.
 */

#include "helpers.h"

#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/nsproxy.h>

/* Room for the device's header and what a lower device may want before it. */
#define HEADROOM 64

/* In the network namespace of the current task. The caller has to put it. */
struct net_device *raw_ether_find(const char *name)
{
	return dev_get_by_name(current->nsproxy->net_ns, name);
}

void raw_ether_put(struct net_device *dev)
{
	dev_put(dev);
}

bool raw_ether_is_ethernet(const struct net_device *dev)
{
	return dev->type == ARPHRD_ETHER && dev->addr_len == ETH_ALEN;
}

/* Whether the function of @pt gets frames of this type by @dev already. */
bool raw_ether_is_taken(struct net_device *dev, u16 type, const struct packet_type *pt)
{
	const struct packet_type *other;
	bool taken = false;

	rcu_read_lock();
	list_for_each_entry_rcu(other, &dev->ptype_specific, list)
		taken |= other->func == pt->func && other->type == htons(type);
	rcu_read_unlock();
	return taken;
}

bool raw_ether_is_ready(const struct net_device *dev)
{
	return netif_running(dev) && netif_carrier_ok(dev);
}

u32 raw_ether_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

const u8 *raw_ether_broadcast(const struct net_device *dev)
{
	return dev->broadcast;
}

struct sk_buff *raw_ether_alloc(u32 len, u8 **bytes)
{
	struct sk_buff *skb = alloc_skb(HEADROOM + len, GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;
	skb_reserve(skb, HEADROOM);
	*bytes = skb_put_zero(skb, len);
	return skb;
}

void raw_ether_drop(struct sk_buff *skb)
{
	kfree_skb(skb);
}

void raw_ether_consume(struct sk_buff *skb)
{
	consume_skb(skb);
}

/* Consumes @skb. */
bool raw_ether_send(struct net_device *dev, struct sk_buff *skb, u16 type, const u8 *to)
{
	skb->dev = dev;
	skb->protocol = htons(type);
	skb_reset_network_header(skb);
	if (dev_hard_header(skb, dev, type, to, NULL, skb->len) < 0) {
		kfree_skb(skb);
		return false;
	}
	return dev_queue_xmit(skb) == NET_XMIT_SUCCESS;
}

/* A frame for this host, with its bytes in a row, or NULL. Consumes @skb. */
struct sk_buff *raw_ether_take(struct sk_buff *skb)
{
	if (skb->pkt_type == PACKET_OTHERHOST)
		goto drop;
	skb = skb_share_check(skb, GFP_ATOMIC);
	if (!skb)
		return NULL;
	if (!skb_mac_header_was_set(skb) || skb_linearize(skb))
		goto drop;
	return skb;
drop:
	kfree_skb(skb);
	return NULL;
}

const u8 *raw_ether_source(const struct sk_buff *skb)
{
	return eth_hdr(skb)->h_source;
}

void raw_ether_packet_type(struct packet_type *pt, struct net_device *dev, u16 type)
{
	pt->type = htons(type);
	pt->dev = dev;
}
