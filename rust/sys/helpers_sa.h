/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests to the subnet administrator (SA), whose component masks are macros.
 */
#ifndef IPOIB_RS_HELPERS_SA_H
#define IPOIB_RS_HELPERS_SA_H

#include <rdma/ib_sa.h>
#include <rdma/ib_verbs.h>

/* A path that is asked for; numbers in host order. */
struct ipoib_rs_sa_path {
	union ib_gid sgid;
	union ib_gid dgid;
	u16 pkey;
	u8 traffic_class;
	/* For all tries together. */
	unsigned int timeout_ms;
};

/* A group to join; numbers in host order. */
struct ipoib_rs_sa_join {
	union ib_gid mgid;
	union ib_gid port_gid;
	u16 pkey;
	/* A bit for each kind of membership. */
	u8 join_state;
	/* If not NULL, the group has to be like this one, and is made if there is none. */
	const struct ib_sa_mcmember_rec *like;
};

int ipoib_rs_sa_query_path(struct ib_sa_client *client, struct ib_device *device, u32 port,
			   const struct ipoib_rs_sa_path *path,
			   void (*callback)(int status, struct sa_path_rec *rec,
					    unsigned int count, void *context),
			   void *context, struct ib_sa_query **query);
struct ib_sa_multicast *
ipoib_rs_sa_join(struct ib_sa_client *client, struct ib_device *device, u32 port,
		 const struct ipoib_rs_sa_join *join,
		 int (*callback)(int status, struct ib_sa_multicast *multicast), void *context);
u32 ipoib_rs_sa_path_dlid(struct sa_path_rec *rec);
int ipoib_rs_path_attributes(struct rdma_ah_attr *attr, struct ib_device *device,
			     const struct ib_gid_attr *sgid_attr, const struct sa_path_rec *rec);
struct ib_ah *ipoib_rs_ah_along(struct ib_pd *pd, const struct ib_gid_attr *sgid_attr,
				const struct sa_path_rec *rec);
void ipoib_rs_group_attributes(struct rdma_ah_attr *attr, const struct ib_gid_attr *sgid_attr,
			       const struct ib_sa_mcmember_rec *rec);
struct ib_ah *ipoib_rs_ah_of_group(struct ib_pd *pd, const struct ib_gid_attr *sgid_attr,
				   const struct ib_sa_mcmember_rec *rec);

#endif
