// SPDX-License-Identifier: GPL-2.0
/*
 * Parts of ipoib_rs that have to be in C: a string parameter, which Rust modules cannot declare,
 * and what ib_ipoib finds in an interface.
 */

#include "helpers.h"

#include <linux/bits.h>
#include <linux/moduleparam.h>
#include <linux/netdevice.h>
#include <rdma/ib_verbs.h>

static char *ports;

module_param(ports, charp, 0444);
MODULE_PARM_DESC(ports,
		 "Ports to make interfaces on by itself: none, all (of InfiniBand), or a list such as mlx5_0:1,mlx5_1:1; by default none, or all with replace=1");

/* NULL if it was not given. */
const char *ipoib_module_ports(void)
{
	return ports;
}

/*
 * For kernels without the patch "IB/ipoib: take no other driver's device for a parent".
 *
 * "ip link add link ... type ipoib" has ib_ipoib take any ARPHRD_INFINIBAND device for one of its
 * own: it follows the pointer at the beginning of the private area, which is clnt_priv of struct
 * rdma_netdev there, and would oops in ours. So point it at a page in which every word is the
 * address of a dummy net_device. Read as priv->flags, that address has IPOIB_FLAG_SUBINTERFACE
 * set; read as priv->dev, it gives a device with a name. A child cannot have children, and ib_ipoib
 * says so in the log and to the user.
 */
#define IPOIB_FLAG_SUBINTERFACE 5

static const struct {
	char pad[BIT(IPOIB_FLAG_SUBINTERFACE)];
	char dev[offsetof(struct net_device, name) + IFNAMSIZ];
} decoy_dev __aligned(2 * BIT(IPOIB_FLAG_SUBINTERFACE)) = {
	.dev = {
		[offsetof(struct net_device, name)] = 'i', 'p', 'o', 'i', 'b', '_', 'r', 's',
	},
};

static const void *const decoy_priv[PAGE_SIZE / sizeof(void *)] = {
	[0 ... PAGE_SIZE / sizeof(void *) - 1] = decoy_dev.dev,
};

static_assert(offsetof(struct rdma_netdev, clnt_priv) == 0);

const void *ipoib_module_decoy(void)
{
	return decoy_priv;
}
