// SPDX-License-Identifier: GPL-2.0
/*
 * Sends datagrams from a queue pair of one RDMA device to one of another, and takes the time.
 */

#include <linux/ktime.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>

#define DEPTH	64	/* requests of either queue */
#define WINDOW	16	/* messages under way */
#define LARGEST	1024
#define GRH	sizeof(struct ib_grh)
#define QKEY	0x1234567
#define LIMIT	(120ULL * NSEC_PER_SEC)

static char *from;
module_param(from, charp, 0444);
MODULE_PARM_DESC(from, "RDMA device that sends");

static char *to;
module_param(to, charp, 0444);
MODULE_PARM_DESC(to, "RDMA device that receives");

static uint messages = 20000;
module_param(messages, uint, 0444);
MODULE_PARM_DESC(messages, "number of messages");

static uint bytes = 64;
module_param(bytes, uint, 0444);
MODULE_PARM_DESC(bytes, "payload of a message");

static ulong elapsed_ns;
module_param(elapsed_ns, ulong, 0444);
MODULE_PARM_DESC(elapsed_ns, "time from the first send to the last receive (read-only)");

struct end {
	struct ib_device *dev;
	struct ib_pd *pd;
	struct ib_cq *cq;
	struct ib_qp *qp;
	void *buffer;
	u64 addr;
};

/* Held while it measures: the devices do not go meanwhile. */
static DEFINE_MUTEX(measuring);
static struct ib_device *from_dev, *to_dev;

static int add(struct ib_device *dev)
{
	if (!strcmp(dev_name(&dev->dev), from))
		from_dev = dev;
	if (!strcmp(dev_name(&dev->dev), to))
		to_dev = dev;
	return 0;
}

static void remove(struct ib_device *dev, void *data)
{
	mutex_lock(&measuring);
	if (from_dev == dev)
		from_dev = NULL;
	if (to_dev == dev)
		to_dev = NULL;
	mutex_unlock(&measuring);
}

static struct ib_client client = {
	.name = "lab_verbs_bench",
	.add = add,
	.remove = remove,
};

static int modify(struct end *end, enum ib_qp_state state, int mask)
{
	struct ib_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.qkey = QKEY,
	};

	return ib_modify_qp(end->qp, &attr, IB_QP_STATE | mask);
}

static void close_end(struct end *end)
{
	if (end->addr)
		ib_dma_unmap_single(end->dev, end->addr, GRH + LARGEST, DMA_BIDIRECTIONAL);
	if (end->qp)
		ib_destroy_qp(end->qp);
	if (end->cq)
		ib_destroy_cq(end->cq);
	if (end->pd)
		ib_dealloc_pd(end->pd);
	kfree(end->buffer);
	memset(end, 0, sizeof(*end));
}

static int open_end(struct end *end)
{
	struct ib_cq_init_attr cq = { .cqe = 2 * DEPTH };
	struct ib_qp_init_attr init = {
		.qp_type = IB_QPT_UD,
		.sq_sig_type = IB_SIGNAL_ALL_WR,
		.cap = {
			.max_send_wr = DEPTH,
			.max_recv_wr = DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
	};
	int ret;

	if (!end->dev)
		return -ENODEV;
	end->pd = ib_alloc_pd(end->dev, 0);
	if (IS_ERR(end->pd)) {
		ret = PTR_ERR(end->pd);
		end->pd = NULL;
		return ret;
	}
	end->cq = ib_create_cq(end->dev, NULL, NULL, NULL, &cq);
	if (IS_ERR(end->cq)) {
		ret = PTR_ERR(end->cq);
		end->cq = NULL;
		return ret;
	}
	init.send_cq = end->cq;
	init.recv_cq = end->cq;
	end->qp = ib_create_qp(end->pd, &init);
	if (IS_ERR(end->qp)) {
		ret = PTR_ERR(end->qp);
		end->qp = NULL;
		return ret;
	}
	end->buffer = kzalloc(GRH + LARGEST, GFP_KERNEL);
	if (!end->buffer)
		return -ENOMEM;
	end->addr = ib_dma_map_single(end->dev, end->buffer, GRH + LARGEST, DMA_BIDIRECTIONAL);
	if (ib_dma_mapping_error(end->dev, end->addr)) {
		end->addr = 0;
		return -ENOMEM;
	}
	ret = modify(end, IB_QPS_INIT, IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY);
	if (!ret)
		ret = modify(end, IB_QPS_RTR, 0);
	if (!ret)
		ret = modify(end, IB_QPS_RTS, IB_QP_SQ_PSN);
	return ret;
}

static struct ib_ah *address(struct end *a, struct end *b)
{
	struct rdma_ah_attr attr = {};
	struct ib_port_attr port;
	union ib_gid gid;
	int ret;

	attr.type = rdma_ah_find_type(a->dev, 1);
	rdma_ah_set_port_num(&attr, 1);
	if (attr.type == RDMA_AH_ATTR_TYPE_ROCE) {
		ret = rdma_query_gid(b->dev, 1, 0, &gid);
		if (ret)
			return ERR_PTR(ret);
		rdma_ah_set_grh(&attr, &gid, 0, 0, 64, 0);
		rdma_get_ll_mac((struct in6_addr *)gid.raw, attr.roce.dmac);
	} else {
		ret = ib_query_port(b->dev, 1, &port);
		if (ret)
			return ERR_PTR(ret);
		rdma_ah_set_dlid(&attr, port.lid);
	}
	return rdma_create_ah(a->pd, &attr, RDMA_CREATE_AH_SLEEPABLE);
}

static int post_receive(struct end *end)
{
	struct ib_sge sge = {
		.addr = end->addr,
		.length = GRH + LARGEST,
		.lkey = end->pd->local_dma_lkey,
	};
	struct ib_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };

	return ib_post_recv(end->qp, &wr, NULL);
}

static int post_send(struct end *end, struct ib_ah *ah, u32 qpn)
{
	struct ib_sge sge = {
		.addr = end->addr,
		.length = bytes,
		.lkey = end->pd->local_dma_lkey,
	};
	struct ib_ud_wr wr = {
		.wr = { .opcode = IB_WR_SEND, .sg_list = &sge, .num_sge = 1 },
		.ah = ah,
		.remote_qpn = qpn,
		.remote_qkey = QKEY,
	};
	int ret;

	local_bh_disable();
	ret = ib_post_send(end->qp, &wr.wr, NULL);
	local_bh_enable();
	return ret;
}

/* The number of completions, or an error. */
static int poll(struct end *end)
{
	struct ib_wc wc[WINDOW];
	int n = ib_poll_cq(end->cq, WINDOW, wc);
	int i;

	for (i = 0; i < n; i++) {
		if (wc[i].status != IB_WC_SUCCESS) {
			pr_err("%s: %s\n", end->dev->name, ib_wc_status_msg(wc[i].status));
			return -EIO;
		}
	}
	return n;
}

static int run(struct end *a, struct end *b, struct ib_ah *ah)
{
	u32 sent = 0, done = 0, received = 0;
	u64 start;
	int i, n;

	for (i = 0; i < DEPTH; i++) {
		n = post_receive(b);
		if (n)
			return n;
	}
	start = ktime_get_ns();
	while (received < messages || done < messages) {
		while (sent < messages && sent - received < WINDOW && sent - done < WINDOW) {
			n = post_send(a, ah, b->qp->qp_num);
			if (n)
				return n;
			sent++;
		}
		n = poll(a);
		if (n < 0)
			return n;
		done += n;
		n = poll(b);
		if (n < 0)
			return n;
		received += n;
		if (!n) {
			if (ktime_get_ns() - start > LIMIT)
				return -ETIME;
			cond_resched();
		}
		while (n--) {
			int ret = post_receive(b);

			if (ret)
				return ret;
		}
	}
	elapsed_ns = ktime_get_ns() - start;
	return 0;
}

static int measure(void)
{
	struct end a = { .dev = from_dev }, b = { .dev = to_dev };
	struct ib_ah *ah;
	int ret;

	ret = open_end(&a);
	if (!ret)
		ret = open_end(&b);
	if (!ret) {
		ah = address(&a, &b);
		ret = PTR_ERR_OR_ZERO(ah);
		if (!ret) {
			ret = run(&a, &b, ah);
			rdma_destroy_ah(ah, RDMA_DESTROY_AH_SLEEPABLE);
		}
	}
	close_end(&a);
	close_end(&b);
	return ret;
}

static int __init verbs_bench_init(void)
{
	int ret;

	if (!from || !to || !messages || bytes > LARGEST)
		return -EINVAL;
	ret = ib_register_client(&client);
	if (ret)
		return ret;
	mutex_lock(&measuring);
	ret = measure();
	mutex_unlock(&measuring);
	ib_unregister_client(&client);
	return ret;
}

static void __exit verbs_bench_exit(void)
{
}

module_init(verbs_bench_init);
module_exit(verbs_bench_exit);
MODULE_DESCRIPTION("Time of datagrams through verbs, for the lab");
MODULE_LICENSE("GPL");
