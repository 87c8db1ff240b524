// SPDX-License-Identifier: GPL-2.0
/*
 * Requests to the subnet administrator (SA), and address handles from its answers.
 */

#include "helpers_sa.h"

#include <rdma/ib_cache.h>

int ipoib_rs_sa_query_path(struct ib_sa_client *client, struct ib_device *device, u32 port,
			   const struct ipoib_rs_sa_path *path,
			   void (*callback)(int status, struct sa_path_rec *rec,
					    unsigned int count, void *context),
			   void *context, struct ib_sa_query **query)
{
	bool opa = rdma_cap_opa_ah(device, port);
	struct sa_path_rec rec = {
		.rec_type	= opa ? SA_PATH_REC_TYPE_OPA : SA_PATH_REC_TYPE_IB,
		.sgid		= path->sgid,
		.dgid		= path->dgid,
		.pkey		= cpu_to_be16(path->pkey),
		.traffic_class	= path->traffic_class,
		.numb_path	= 1,
	};

	return ib_sa_path_rec_get(client, device, port, &rec,
				  IB_SA_PATH_REC_SGID | IB_SA_PATH_REC_DGID |
				  IB_SA_PATH_REC_PKEY | IB_SA_PATH_REC_TRAFFIC_CLASS |
				  IB_SA_PATH_REC_NUMB_PATH,
				  path->timeout_ms, GFP_KERNEL, callback, context, query);
}

struct ib_sa_multicast *
ipoib_rs_sa_join(struct ib_sa_client *client, struct ib_device *device, u32 port,
		 const struct ipoib_rs_sa_join *join,
		 int (*callback)(int status, struct ib_sa_multicast *multicast), void *context)
{
	ib_sa_comp_mask mask = IB_SA_MCMEMBER_REC_MGID | IB_SA_MCMEMBER_REC_PORT_GID |
			       IB_SA_MCMEMBER_REC_PKEY | IB_SA_MCMEMBER_REC_JOIN_STATE;
	struct ib_sa_mcmember_rec rec = {};

	if (join->like) {
		rec = *join->like;
		rec.mtu_selector = IB_SA_EQ;
		rec.rate_selector = IB_SA_EQ;
		mask |= IB_SA_MCMEMBER_REC_QKEY | IB_SA_MCMEMBER_REC_TRAFFIC_CLASS |
			IB_SA_MCMEMBER_REC_MTU_SELECTOR | IB_SA_MCMEMBER_REC_MTU |
			IB_SA_MCMEMBER_REC_RATE_SELECTOR | IB_SA_MCMEMBER_REC_RATE |
			IB_SA_MCMEMBER_REC_SL | IB_SA_MCMEMBER_REC_FLOW_LABEL |
			IB_SA_MCMEMBER_REC_HOP_LIMIT;
	}
	rec.mgid = join->mgid;
	rec.port_gid = join->port_gid;
	rec.pkey = cpu_to_be16(join->pkey);
	rec.join_state = join->join_state;
	return ib_sa_join_multicast(client, device, port, &rec, mask, GFP_KERNEL, callback,
				    context);
}

/* 0 if it has none. */
u32 ipoib_rs_sa_path_dlid(struct sa_path_rec *rec)
{
	return be32_to_cpu(sa_path_get_dlid(rec));
}

static struct ib_ah *create_ah(struct ib_pd *pd, struct rdma_ah_attr *attr)
{
	struct ib_ah *ah = rdma_create_ah(pd, attr, RDMA_CREATE_AH_SLEEPABLE);

	rdma_destroy_ah_attr(attr);
	return ah;
}

/*
 * Attributes of packets along a path: with a GRH, which refers to @sgid_attr, only if the path has
 * a hop limit, as one through a router has.
 */
int ipoib_rs_path_attributes(struct rdma_ah_attr *attr, struct ib_device *device,
			     const struct ib_gid_attr *sgid_attr, const struct sa_path_rec *rec)
{
	struct sa_path_rec path = *rec;

	return ib_init_ah_attr_from_path(device, sgid_attr->port_num, &path, attr, sgid_attr);
}

/* An address handle along a path. */
struct ib_ah *ipoib_rs_ah_along(struct ib_pd *pd, const struct ib_gid_attr *sgid_attr,
				const struct sa_path_rec *rec)
{
	struct rdma_ah_attr attr;
	int err = ipoib_rs_path_attributes(&attr, pd->device, sgid_attr, rec);

	return err ? ERR_PTR(err) : create_ah(pd, &attr);
}

/* Attributes of packets to a group, which always have a GRH; the type is set already. */
void ipoib_rs_group_attributes(struct rdma_ah_attr *attr, const struct ib_gid_attr *sgid_attr,
			       const struct ib_sa_mcmember_rec *rec)
{
	union ib_gid mgid = rec->mgid;

	rdma_ah_set_port_num(attr, sgid_attr->port_num);
	rdma_ah_set_dlid(attr, be16_to_cpu(rec->mlid));
	rdma_ah_set_sl(attr, rec->sl);
	rdma_ah_set_static_rate(attr, rec->rate);
	rdma_move_grh_sgid_attr(attr, &mgid, be32_to_cpu(rec->flow_label),
				rec->hop_limit, rec->traffic_class, sgid_attr);
}

/* An address handle for a group. */
struct ib_ah *ipoib_rs_ah_of_group(struct ib_pd *pd, const struct ib_gid_attr *sgid_attr,
				   const struct ib_sa_mcmember_rec *rec)
{
	struct rdma_ah_attr attr = {
		.type = rdma_ah_find_type(pd->device, sgid_attr->port_num),
	};

	rdma_hold_gid_attr(sgid_attr);
	ipoib_rs_group_attributes(&attr, sgid_attr, rec);
	return create_ah(pd, &attr);
}
