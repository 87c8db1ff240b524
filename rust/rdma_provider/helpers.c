// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros of the RDMA core that the provider crate calls.
 */

#include "helpers.h"

/* @size counts from the start of the struct ib_device, which comes first. */
struct ib_device *rdma_provider_alloc(size_t size)
{
	return _ib_alloc_device(size, &init_net);
}

void rdma_provider_place(struct ib_device *device, struct device *parent)
{
	device->dev.parent = parent;
}

void rdma_provider_fw_version(char *version, u32 major, u32 minor, u32 patch)
{
	snprintf(version, IB_FW_VERSION_NAME_MAX, "%u.%u.%u", major, minor, patch);
}

/* RDMA core's events are told of by this work queue. */
void rdma_provider_flush_events(void)
{
	flush_workqueue(ib_wq);
}

void rdma_provider_work_init(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}

void rdma_provider_work_queue(struct work_struct *work)
{
	queue_work(system_bh_wq, work);
}

void rdma_provider_timer_init(struct timer_list *timer, void (*func)(struct timer_list *))
{
	timer_setup(timer, func, 0);
}

void rdma_provider_timer_set(struct timer_list *timer, u32 millis)
{
	mod_timer(timer, jiffies + msecs_to_jiffies(millis));
}
