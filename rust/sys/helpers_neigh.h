/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Neighbours on RoCE: the Ethernet address behind a GID, as the IP stack knows it.
 */
#ifndef IPOIB_RS_HELPERS_NEIGH_H
#define IPOIB_RS_HELPERS_NEIGH_H

#include <linux/if_ether.h>
#include <linux/in6.h>
#include <linux/list.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_verbs.h>

/*
 * A neighbour that is watched. @changed is called in any context, under a spinlock, when the IP
 * stack knows another Ethernet address than @mac, or has lost the neighbour.
 */
struct ipoib_rs_neighbour {
	struct hlist_node node;
	struct in6_addr next_hop;
	/* Only compared. */
	const struct net_device *dev;
	u8 mac[ETH_ALEN];
	void (*changed)(struct ipoib_rs_neighbour *neigh);
};

int ipoib_rs_neighbours_register(void);
void ipoib_rs_neighbours_unregister(void);
void ipoib_rs_advertise(const struct ib_gid_attr *attr);
int ipoib_rs_neighbour_ask(struct rdma_dev_addr *addr, const struct ib_gid_attr *from,
			   const union ib_gid *to, u32 timeout_ms,
			   void (*done)(int status, struct sockaddr *from,
					struct rdma_dev_addr *addr, void *context),
			   void *context);
int ipoib_rs_neighbour_watch(struct ipoib_rs_neighbour *watched, const struct ib_gid_attr *from,
			     const union ib_gid *to, bool presumed);
void ipoib_rs_neighbour_forget(struct ipoib_rs_neighbour *watched);

#endif
