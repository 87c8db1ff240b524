/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Input of bindgen: the kernel's network, RDMA and configfs headers and our C helpers.
 */

#include <linux/hrtimer_types.h>

#include <linux/configfs.h>
#include <linux/debugfs.h>
#include <linux/ethtool.h>
#include <linux/if_arp.h>
#include <linux/if_infiniband.h>
#include <linux/inetdevice.h>
#include <linux/jiffies.h>
#include <linux/netdevice.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/sysctl.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <net/dropreason.h>
#include <net/gro.h>
#include <net/gso.h>
#include <net/if_inet6.h>
#include <net/ip.h>
#include <net/net_namespace.h>
#include <net/netdev_queues.h>
#include <net/netdev_rx_queue.h>
#include <net/netlink.h>
#include <net/page_pool/helpers.h>
#include <net/rtnetlink.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>

#include "helpers_cm.h"
#include "helpers_ipv6.h"
#include "helpers_neigh.h"
#include "helpers_net.h"
#include "helpers_rdma.h"
#include "helpers_sa.h"
#include "helpers_skb.h"
#include "../configfs_tree/helpers.h"
#include "../debugfs_files/helpers.h"
#include "../ipoib_module/helpers.h"
#include "../ipoib_trace/helpers.h"
#include "../packet_trace/helpers.h"
#include "../raw_ether/helpers.h"
#include "../rdma_provider/helpers.h"
