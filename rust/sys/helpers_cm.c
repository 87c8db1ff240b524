// SPDX-License-Identifier: GPL-2.0
/*
 * Parameters of the InfiniBand connection manager that have bit fields or depend on the link layer.
 */

#include "helpers_cm.h"

#include <linux/string.h>
#include <rdma/ib_sa.h>

/* Along a path that is known already. */
int ipoib_rs_cm_send_request(struct ib_cm_id *id, const struct ipoib_rs_cm_request *req)
{
	const struct ib_gid_attr *sgid_attr = req->sgid_attr;
	struct sa_path_rec path = {
		.rec_type			= sa_conv_gid_to_pathrec_type(sgid_attr->gid_type),
		.sgid				= sgid_attr->gid,
		.dgid				= req->dgid,
		.service_id			= cpu_to_be64(req->service_id),
		.hop_limit			= req->hop_limit,
		.traffic_class			= req->traffic_class,
		.reversible			= 1,
		.numb_path			= 1,
		.pkey				= cpu_to_be16(req->pkey),
		.sl				= req->sl,
		.mtu_selector			= IB_SA_EQ,
		.mtu				= ib_mtu_int_to_enum(req->mtu),
		.rate_selector			= IB_SA_EQ,
		.rate				= IB_RATE_PORT_CURRENT,
		.packet_life_time_selector	= IB_SA_EQ,
		.packet_life_time		= req->packet_life_time,
		.roce.route_resolved		= true,
	};
	struct ib_cm_req_param param = {
		.primary_path			= &path,
		.ppath_sgid_attr		= sgid_attr,
		.service_id			= cpu_to_be64(req->service_id),
		.qp_num				= req->qpn,
		.qp_type			= IB_QPT_RC,
		.starting_psn			= req->psn,
		.private_data			= req->private_data,
		.private_data_len		= req->private_data_len,
		.remote_cm_response_timeout	= req->response_timeout,
		.local_cm_response_timeout	= req->response_timeout,
		.retry_count			= req->retry_count,
		.rnr_retry_count		= req->rnr_retry_count,
		.max_cm_retries			= req->cm_retries,
		.srq				= req->srq,
	};

	if (req->path) {
		path = *req->path;
		path.service_id = param.service_id;
	} else {
		memcpy(path.roce.dmac, req->dmac, ETH_ALEN);
	}
	return ib_send_cm_req(id, &param);
}
