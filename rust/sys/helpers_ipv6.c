// SPDX-License-Identifier: GPL-2.0
/*
 * The IPv6 configuration of an IPoIB interface.
 */

#include "helpers_ipv6.h"

#include <linux/if_infiniband.h>
#include <net/addrconf.h>
#include <net/net_namespace.h>

/* The place of the GUID in a link-layer address, from which IPv6 makes an interface identifier. */
#define GUID_OFFSET (INFINIBAND_ALEN - 8)

/* Whether @other, on the link of @dev, makes its interface identifiers of the same GUID. */
static bool is_twin(const struct net_device *dev, const struct net_device *other)
{
	const struct inet6_dev *idev = __in6_dev_get(other);

	return other != dev && other->type == dev->type && idev &&
	       READ_ONCE(idev->cnf.addr_gen_mode) == IN6_ADDR_GEN_MODE_EUI64 &&
	       !memcmp(other->broadcast, dev->broadcast, INFINIBAND_ALEN) &&
	       !memcmp(other->dev_addr + GUID_OFFSET, dev->dev_addr + GUID_OFFSET, 8);
}

/* Whether @dev has a twin, in any namespace and of any driver. */
static bool has_twin(const struct net_device *dev)
{
	const struct net_device *other;
	const struct net *net;
	bool found = false;

	rcu_read_lock();
	for_each_net_rcu(net) {
		for_each_netdev_rcu(net, other)
			found = found || is_twin(dev, other);
	}
	rcu_read_unlock();
	return found;
}

/*
 * Has IPv6 make interface identifiers at random where another interface on the link makes them of
 * the same GUID, and otherwise of the GUID. @random: what was returned the last time, or false if
 * IPv6 has begun on @dev since then; a mode that a user has chosen since then stays. Returns true
 * if this function has them made at random. RTNL is held.
 */
bool ipoib_rs_ipv6_distinguish(struct net_device *dev, bool random)
{
	struct inet6_dev *idev = __in6_dev_get(dev);

	if (!idev || idev->cnf.addr_gen_mode !=
		     (random ? IN6_ADDR_GEN_MODE_RANDOM : IN6_ADDR_GEN_MODE_EUI64))
		return random;
	random = has_twin(dev);
	WRITE_ONCE(idev->cnf.addr_gen_mode,
		   random ? IN6_ADDR_GEN_MODE_RANDOM : IN6_ADDR_GEN_MODE_EUI64);
	return random;
}
