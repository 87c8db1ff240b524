/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros of the RDMA core and the network core that the provider crate calls.
 */
#ifndef RDMA_PROVIDER_HELPERS_H
#define RDMA_PROVIDER_HELPERS_H

#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_verbs.h>

struct ib_device *rdma_provider_alloc(size_t size);
void rdma_provider_place(struct ib_device *device, struct device *parent);
void rdma_provider_fw_version(char *version, u32 major, u32 minor, u32 patch);
void rdma_provider_flush_events(void);
void rdma_provider_wait_for_readers(void);
void rdma_provider_work_init(struct work_struct *work, work_func_t func);
void rdma_provider_bh_work_init(struct work_struct *work, work_func_t func);
void rdma_provider_work_queue(struct work_struct *work);
void rdma_provider_bh_work_queue(int cpu, struct work_struct *work);
int rdma_provider_vector_cpu(u32 vector);
int rdma_provider_cpu(void);
void rdma_provider_timer_init(struct timer_list *timer, void (*func)(struct timer_list *));
void rdma_provider_timer_set(struct timer_list *timer, u32 millis);
void rdma_provider_hrtimer_init(struct hrtimer *timer,
				enum hrtimer_restart (*func)(struct hrtimer *));
void rdma_provider_hrtimer_set(struct hrtimer *timer, s64 nanos);
void rdma_provider_warn_overlap(void);
u64 rdma_provider_netns(void);
struct net_device *rdma_provider_netdev_find(u64 netns, const char *name);
struct net_device *rdma_provider_get_netdev(struct ib_device *device, u32 port);
void rdma_provider_netdev_put(struct net_device *dev);
int rdma_provider_netdev_check(struct net_device *dev);
u32 rdma_provider_netdev_mtu(const struct net_device *dev);
bool rdma_provider_is_netdev(struct ib_device *device, u32 port, const struct net_device *dev);

#endif
