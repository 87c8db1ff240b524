/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros of the RDMA core that the rdma crate calls.
 */
#ifndef IPOIB_RS_HELPERS_RDMA_H
#define IPOIB_RS_HELPERS_RDMA_H

#include <linux/skbuff.h>
#include <linux/workqueue.h>
#include <net/if_inet6.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_verbs.h>

/* The network device that a GID belongs to. */
enum ipoib_rs_gid_owner {
	IPOIB_RS_GID_OTHER,
	IPOIB_RS_GID_OWN,
	IPOIB_RS_GID_BOND,
};

/* Whether that device has the GID as an address. */
enum ipoib_rs_gid_address {
	IPOIB_RS_GID_NO_ADDRESS,
	/* Duplicate address detection has yet to end. */
	IPOIB_RS_GID_TENTATIVE,
	IPOIB_RS_GID_ADDRESS,
};

/* Device. */
bool ipoib_rs_ib_device_try_get(struct ib_device *device);
u32 ipoib_rs_ib_start_port(const struct ib_device *device);
u32 ipoib_rs_ib_end_port(const struct ib_device *device);
bool ipoib_rs_ib_is_roce(const struct ib_device *device, u32 port);
bool ipoib_rs_ib_is_ib(struct ib_device *device, u32 port);
int ipoib_rs_ib_gid_table_len(const struct ib_device *device, u32 port);
enum ipoib_rs_gid_owner ipoib_rs_ib_gid_owner(const struct ib_gid_attr *attr);
enum ipoib_rs_gid_address ipoib_rs_ib_gid_address(const struct ib_gid_attr *attr);
bool ipoib_rs_ib_has_gids_of(struct ib_device *device, const struct net_device *ndev);
struct net *ipoib_rs_ib_net(const struct ib_device *device);
bool ipoib_rs_ib_is_visible(const struct ib_device *device, const struct net *net);
bool ipoib_rs_ib_may_configure(const struct ib_device *device);
int ipoib_rs_ib_num_vf(const struct ib_device *device);
bool ipoib_rs_ib_carries(const struct ib_device *device, u32 port, const struct net_device *ndev);
bool ipoib_rs_ib_is_shared(const struct ib_device *device, u32 port, const struct net_device *own,
			   const union ib_gid *mgid);
struct net_device *ipoib_rs_ib_netdev(struct ib_device *device, u32 port);
int ipoib_rs_ib_netdev_ifindex(struct ib_device *device, u32 port);
void ipoib_rs_dev_put(struct net_device *ndev);
bool ipoib_rs_ib_is_netdev(struct ib_device *device, u32 port,
			   const struct net_device *ndev);
struct net_device *ipoib_rs_ib_with_address(struct net_device *ndev, const struct sockaddr *addr);
struct net_device *ipoib_rs_ib_topmost(struct net_device *ndev);
const char *ipoib_rs_ib_parent_name(const struct ib_device *device);
void ipoib_rs_ib_place(const struct ib_device *device, u32 port, struct net_device *ndev);
u32 ipoib_rs_ib_speed_mbps(struct ib_port_attr *attr);
int ipoib_rs_ib_mtu_bytes(enum ib_mtu mtu);
struct device *ipoib_rs_ib_dma_device(struct ib_device *device);
void ipoib_rs_ib_event_handler_init(struct ib_event_handler *handler,
				    struct ib_device *device,
				    void (*func)(struct ib_event_handler *handler,
						 struct ib_event *event));
bool ipoib_rs_keep_module(void);
bool ipoib_rs_wait_for_calls(void);
void *ipoib_rs_noop(void);
void ipoib_rs_copy_name(struct rdma_restrack_entry *res);
void ipoib_rs_work_init(struct work_struct *work, work_func_t func);

/* The group's IP side, on RoCE. */
struct inet6_dev *ipoib_rs_ib_ip_join(struct ib_device *device, u32 port,
				      const union ib_gid *mgid);
bool ipoib_rs_ip_stands(const struct inet6_dev *idev);
unsigned int ipoib_rs_ib_ip_members(struct ib_device *device, u32 port, const union ib_gid *mgid);
void ipoib_rs_ib_ip_leave(struct inet6_dev *idev, const union ib_gid *mgid);

/* DMA. */
void ipoib_rs_ib_sync_rx(struct ib_device *device, u64 addr, size_t len, bool for_cpu);
int ipoib_rs_ib_map_skb(struct ib_device *device, struct sk_buff *skb, struct ib_sge *sge,
			unsigned int max);
void ipoib_rs_ib_unmap_skb(struct ib_device *device, struct sk_buff *skb, const u64 *addr);

#if IS_BUILTIN(CONFIG_KUNIT)
void ipoib_rs_stub_sync_rx(void (*stub)(struct ib_device *device, u64 addr, size_t len,
					bool for_cpu));
void ipoib_rs_stub_parts(u64 (*map)(struct ib_device *device, struct page *page, size_t offset,
				    size_t len),
			 void (*unmap)(struct ib_device *device, u64 addr, size_t len));
#endif

#endif
