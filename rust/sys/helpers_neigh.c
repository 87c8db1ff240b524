// SPDX-License-Identifier: GPL-2.0
/*
 * Neighbours on RoCE: the Ethernet address behind a GID, as the IP stack knows it.
 */

#include "helpers_neigh.h"

#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/spinlock.h>
#include <net/addrconf.h>
#include <net/ip6_route.h>
#include <net/ndisc.h>
#include <net/neighbour.h>
#include <net/netevent.h>
#include <rdma/ib_cache.h>

static DEFINE_HASHTABLE(watched_neighbours, 10);
/* Taken before the lock of a neighbour. */
static DEFINE_SPINLOCK(watched_lock);

static u32 hash_of(const struct in6_addr *next_hop)
{
	return jhash(next_hop, sizeof(*next_hop), 0);
}

/* The Ethernet address of a neighbour. */
static void copy_mac(u8 *mac, const struct neighbour *n)
{
	char address[MAX_ADDR_LEN];

	neigh_ha_snapshot(address, n, n->dev);
	memcpy(mac, address, ETH_ALEN);
}

/* Whether @n is known to be reached by another Ethernet address than @mac, or by none. */
static bool has_moved(const struct neighbour *n, const u8 *mac)
{
	u8 state = READ_ONCE(n->nud_state);
	u8 now[ETH_ALEN];

	if (!(state & NUD_VALID))
		return state & NUD_FAILED;

	copy_mac(now, n);
	return !ether_addr_equal_unaligned(now, mac);
}

static int neighbour_event(struct notifier_block *block, unsigned long event, void *data)
{
	struct ipoib_rs_neighbour *watched;
	const struct neighbour *n = data;
	struct in6_addr key;

	if (event != NETEVENT_NEIGH_UPDATE || n->tbl->family != AF_INET6 ||
	    n->dev->addr_len != ETH_ALEN)
		return NOTIFY_DONE;

	memcpy(&key, n->primary_key, sizeof(key));
	spin_lock_bh(&watched_lock);
	hash_for_each_possible(watched_neighbours, watched, node, hash_of(&key)) {
		if (watched->dev == n->dev && ipv6_addr_equal(&watched->next_hop, &key) &&
		    has_moved(n, watched->mac))
			watched->changed(watched);
	}
	spin_unlock_bh(&watched_lock);
	return NOTIFY_DONE;
}

static struct notifier_block neighbour_block = {
	.notifier_call = neighbour_event,
};

/* Has changes of neighbours noticed. */
int ipoib_rs_neighbours_register(void)
{
	return register_netevent_notifier(&neighbour_block);
}

void ipoib_rs_neighbours_unregister(void)
{
	unregister_netevent_notifier(&neighbour_block);
}

/*
 * Tells those who know the address of a GID what Ethernet address it has now. The IP stack does so
 * only where ndisc_notify is set.
 */
void ipoib_rs_advertise(const struct ib_gid_attr *attr)
{
	struct in6_addr addr;
	struct net_device *ndev;

	memcpy(&addr, attr->gid.raw, sizeof(addr));
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(attr);
	if (!IS_ERR(ndev) && ipv6_mod_enabled() &&
	    ipv6_chk_addr(dev_net(ndev), &addr, ndev, 1)) {
		const struct inet6_dev *idev = __in6_dev_get(ndev);

		ndisc_send_na(ndev, &in6addr_linklocal_allnodes, &addr,
			      idev && READ_ONCE(idev->cnf.forwarding), false, true, true);
	}
	rcu_read_unlock();
}

/* The route of packets from a GID to another, or an ERR_PTR(). */
static struct dst_entry *route(const struct ib_gid_attr *from, const union ib_gid *to)
{
	struct flowi6 flow = {};
	struct net_device *ndev;
	struct dst_entry *dst;

	/* Booted with ipv6.disable=1, IPv6 has no routes to look for. */
	if (!ipv6_mod_enabled())
		return ERR_PTR(-EAFNOSUPPORT);

	memcpy(&flow.saddr, from->gid.raw, sizeof(flow.saddr));
	memcpy(&flow.daddr, to->raw, sizeof(flow.daddr));
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(from);
	if (IS_ERR(ndev)) {
		dst = ERR_CAST(ndev);
	} else {
		flow.flowi6_oif = ndev->ifindex;
		dst = ip6_dst_lookup_flow(dev_net(ndev), NULL, &flow, NULL);
	}
	rcu_read_unlock();
	return dst;
}

static bool is_local(const struct dst_entry *dst)
{
	return dst_rt6_info(dst)->rt6i_flags & RTF_LOCAL;
}

/*
 * Solicits @n in the name of the GID @from. The IP stack does so only if the netdev has a
 * link-local address, or a packet is waiting.
 */
static void solicit(const struct neighbour *n, const struct ib_gid_attr *from)
{
	struct in6_addr saddr, target, daddr;
	struct sk_buff *skb;

	memcpy(&saddr, from->gid.raw, sizeof(saddr));
	if (ipv6_addr_type(&saddr) & IPV6_ADDR_LINKLOCAL)
		return;

	memcpy(&target, n->primary_key, sizeof(target));
	if (READ_ONCE(n->nud_state) & NUD_VALID)
		daddr = target;
	else
		addrconf_addr_solict_mult(&target, &daddr);
	skb = ndisc_ns_create(n->dev, &target, &saddr, 0);
	if (skb)
		ndisc_send_skb(skb, &daddr, &saddr);
}

/*
 * Asks the IP stack for the Ethernet address behind a GID, as rdma_create_user_ah() does, which
 * waits for the answer. Unless there is an error, @done is called once, unless rdma_addr_cancel()
 * comes first; @addr and @from must stay until either has happened.
 */
int ipoib_rs_neighbour_ask(struct rdma_dev_addr *addr, const struct ib_gid_attr *from,
			   const union ib_gid *to, u32 timeout_ms,
			   void (*done)(int status, struct sockaddr *from,
					struct rdma_dev_addr *addr, void *context),
			   void *context)
{
	union {
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	} own, peer;
	struct dst_entry *dst;
	struct neighbour *n;
	int err;

	rdma_gid2ip((struct sockaddr *)&own, &from->gid);
	rdma_gid2ip((struct sockaddr *)&peer, to);
	memset(addr, 0, sizeof(*addr));
	addr->net = &init_net;
	addr->sgid_attr = from;
	err = rdma_resolve_ip((struct sockaddr *)&own, (struct sockaddr *)&peer, addr, timeout_ms,
			      done, true, context);
	dst = err ? ERR_PTR(err) : route(from, to);
	if (IS_ERR(dst))
		return err;

	n = is_local(dst) ? NULL : dst_neigh_lookup(dst, to->raw);
	if (n) {
		if (!(READ_ONCE(n->nud_state) & NUD_VALID))
			solicit(n, from);
		neigh_release(n);
	}
	dst_release(dst);
	return 0;
}

/* The Ethernet address of the netdev of this host that has the address @to. */
static int own_mac(u8 *mac, const struct ib_gid_attr *from, const union ib_gid *to)
{
	struct net_device *ndev;
	struct in6_addr addr;
	int err = -ENODEV;

	memcpy(&addr, to->raw, sizeof(addr));
	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(from);
	if (!IS_ERR(ndev) && !ipv6_chk_addr(dev_net(ndev), &addr, ndev, 1))
		ndev = ipv6_dev_find(dev_net(ndev), &addr, NULL);
	if (!IS_ERR_OR_NULL(ndev) && ndev->addr_len == ETH_ALEN) {
		memcpy(mac, ndev->dev_addr, ETH_ALEN);
		err = 0;
	}
	rcu_read_unlock();
	return err;
}

/* Begins to watch @n, whose Ethernet address is presumed if it is not known. */
static int watch(struct ipoib_rs_neighbour *watched, struct neighbour *n,
		 const struct ib_gid_attr *from, bool presumed)
{
	u8 state;

	if (n->dev->addr_len != ETH_ALEN)
		return presumed ? 0 : -EHOSTUNREACH;

	watched->dev = n->dev;
	memcpy(&watched->next_hop, n->primary_key, sizeof(watched->next_hop));
	spin_lock_bh(&watched_lock);
	state = READ_ONCE(n->nud_state);
	if (state & NUD_VALID)
		copy_mac(watched->mac, n);
	if ((state & NUD_VALID) || presumed)
		hash_add(watched_neighbours, &watched->node, hash_of(&watched->next_hop));
	spin_unlock_bh(&watched_lock);

	/* The IP stack looks whether it is still there only if it sends something itself. */
	if (state & NUD_STALE)
		neigh_update(n, NULL, NUD_PROBE, 0, 0);
	else if (!(state & NUD_VALID))
		neigh_event_send(n, NULL);
	if ((state & NUD_STALE) || !(state & NUD_VALID))
		solicit(n, from);
	return (state & NUD_VALID) || presumed ? 0 : -EHOSTUNREACH;
}

/*
 * Finds the Ethernet address that packets from @from to @to go to, and watches it until
 * ipoib_rs_neighbour_forget(). If the IP stack does not know it, it asks for it; until it has an
 * answer, @watched->mac is right if that is @presumed, else this is an error.
 *
 * May sleep.
 */
int ipoib_rs_neighbour_watch(struct ipoib_rs_neighbour *watched, const struct ib_gid_attr *from,
			     const union ib_gid *to, bool presumed)
{
	struct dst_entry *dst = route(from, to);
	struct neighbour *n;
	int err;

	INIT_HLIST_NODE(&watched->node);
	if (IS_ERR(dst))
		return presumed ? 0 : PTR_ERR(dst);

	if (is_local(dst)) {
		err = own_mac(watched->mac, from, to);
	} else {
		n = dst_neigh_lookup(dst, to->raw);
		err = n ? watch(watched, n, from, presumed) : -ENOBUFS;
		if (n)
			neigh_release(n);
	}
	dst_release(dst);
	return presumed ? 0 : err;
}

/* On return, @watched->changed neither runs nor will. */
void ipoib_rs_neighbour_forget(struct ipoib_rs_neighbour *watched)
{
	spin_lock_bh(&watched_lock);
	if (!hlist_unhashed(&watched->node))
		hash_del(&watched->node);
	spin_unlock_bh(&watched_lock);
}
