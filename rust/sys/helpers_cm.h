/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parameters of the InfiniBand connection manager that have bit fields or depend on the link layer.
 */
#ifndef IPOIB_RS_HELPERS_CM_H
#define IPOIB_RS_HELPERS_CM_H

#include <rdma/ib_cm.h>
#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>

/* A connection request; numbers in host order. */
struct ipoib_rs_cm_request {
	const struct ib_gid_attr *sgid_attr;
	/* On InfiniBand, the path; NULL on RoCE, where what follows tells it. */
	const struct sa_path_rec *path;
	union ib_gid dgid;
	u8 dmac[ETH_ALEN];
	u8 hop_limit;
	u8 traffic_class;
	u8 sl;
	/* Times: 4.096 us times two to the power of this. */
	u8 packet_life_time;
	u8 response_timeout;
	u8 cm_retries;
	u8 retry_count;
	u8 rnr_retry_count;
	u8 private_data_len;
	/* Whether the queue pair receives from a shared receive queue. */
	u8 srq;
	u16 pkey;
	/* Bytes, on RoCE. */
	u32 mtu;
	u32 qpn;
	u32 psn;
	u64 service_id;
	const void *private_data;
};

int ipoib_rs_cm_send_request(struct ib_cm_id *id, const struct ipoib_rs_cm_request *req);

#endif
