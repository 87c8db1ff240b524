// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros of the RDMA core that the provider crate calls.
 */

#include "helpers.h"

#include <linux/cpumask.h>
#include <linux/smp.h>

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

/*
 * RDMA core destroys objects one after the other, each of which waits: a fabric that goes down may have thousands, and
 * a normal grace period takes tens of milliseconds.
 */
void rdma_provider_wait_for_readers(void)
{
	synchronize_rcu_expedited();
}

void rdma_provider_work_init(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}

/* On this CPU if @cpu is negative, or offline. */
void rdma_provider_work_queue(int cpu, struct work_struct *work)
{
	if (cpu >= 0 && cpu_online(cpu))
		queue_work_on(cpu, system_bh_wq, work);
	else
		queue_work(system_bh_wq, work);
}

int rdma_provider_cpu(void)
{
	return raw_smp_processor_id();
}

void rdma_provider_timer_init(struct timer_list *timer, void (*func)(struct timer_list *))
{
	timer_setup(timer, func, 0);
}

void rdma_provider_timer_set(struct timer_list *timer, u32 millis)
{
	mod_timer(timer, jiffies + msecs_to_jiffies(millis));
}

void rdma_provider_hrtimer_init(struct hrtimer *timer,
				enum hrtimer_restart (*func)(struct hrtimer *))
{
	hrtimer_setup(timer, func, CLOCK_MONOTONIC, HRTIMER_MODE_REL);
}

void rdma_provider_hrtimer_set(struct hrtimer *timer, s64 nanos)
{
	hrtimer_start(timer, ns_to_ktime(nanos), HRTIMER_MODE_REL);
}
