// SPDX-License-Identifier: GPL-2.0
/*
 * Reproducer: destroys an ID of the IB CM while its handler is told that a send has failed.
 *
 * ib_destroy_cm_id() has to wait until the handler has returned. If it does not, loading the module
 * fails with EBUSY.
 */

#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>

#define PORT		1
#define TIMEOUT_MS	50	/* until the request counts as failed */
#define BUSY_MS		300	/* the handler's time */

static char *netdev;
module_param(netdev, charp, 0444);
MODULE_PARM_DESC(netdev, "network device of a RoCE port to send from");

static DECLARE_COMPLETION(entered);
static DECLARE_COMPLETION(left);

static int report(struct ib_cm_id *id, const struct ib_cm_event *event)
{
	bool *returned = id->context;

	complete(&entered);
	msleep(BUSY_MS);
	WRITE_ONCE(*returned, true);
	complete(&left);
	return 0;
}

/* The way to a neighbour that is not there. */
static void nowhere(struct sa_path_rec *path, const struct ib_gid_attr *own)
{
	u8 mac[ETH_ALEN] = { 0x02, 0, 0, 0, 0, 0x99 };

	path->rec_type = SA_PATH_REC_TYPE_ROCE_V2;
	path->sgid = own->gid;
	path->dgid = own->gid;
	path->dgid.raw[15] ^= 0xff;
	path->pkey = cpu_to_be16(0xffff);
	path->mtu = IB_MTU_1024;
	path->mtu_selector = IB_SA_EQ;
	path->rate = IB_RATE_10_GBPS;
	path->rate_selector = IB_SA_EQ;
	path->packet_life_time_selector = IB_SA_EQ;
	path->hop_limit = 64;
	path->reversible = 1;
	path->numb_path = 1;
	path->roce.route_resolved = true;
	sa_path_set_dmac(path, mac);
}

static int destroy_while_it_is_told(struct ib_device *dev)
{
	struct ib_cm_sidr_req_param request = {
		.service_id = cpu_to_be64(1),
		.timeout_ms = TIMEOUT_MS,
	};
	const struct ib_gid_attr *own;
	struct sa_path_rec path = {};
	bool returned = false;
	struct ib_cm_id *id;
	int ret;

	own = rdma_get_gid_attr(dev, PORT, 0);
	if (IS_ERR(own))
		return PTR_ERR(own);
	id = ib_create_cm_id(dev, report, &returned);
	if (IS_ERR(id)) {
		rdma_put_gid_attr(own);
		return PTR_ERR(id);
	}
	nowhere(&path, own);
	request.path = &path;
	request.sgid_attr = own;
	ret = ib_send_cm_sidr_req(id, &request);
	if (!ret)
		wait_for_completion(&entered);
	ib_destroy_cm_id(id);
	if (!ret) {
		ret = READ_ONCE(returned) ? 0 : -EBUSY;
		/* What it writes to is ours. */
		wait_for_completion(&left);
	}
	rdma_put_gid_attr(own);
	return ret;
}

static int __init cm_report_init(void)
{
	struct net_device *lower;
	struct ib_device *dev;
	int ret;

	lower = netdev ? dev_get_by_name(current->nsproxy->net_ns, netdev) : NULL;
	if (!lower)
		return -ENODEV;
	dev = ib_device_get_by_netdev(lower, RDMA_DRIVER_UNKNOWN);
	dev_put(lower);
	if (!dev)
		return -ENODEV;
	ret = destroy_while_it_is_told(dev);
	ib_device_put(dev);
	return ret;
}
module_init(cm_report_init);

static void __exit cm_report_exit(void)
{
}
module_exit(cm_report_exit);

MODULE_DESCRIPTION("Destroys an ID of the IB CM while its handler runs");
MODULE_LICENSE("GPL");
