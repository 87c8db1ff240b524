// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros of the RDMA core and the network core that the provider crate calls.
 */

#include "helpers.h"

#include <linux/bug.h>
#include <linux/cpumask.h>
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/nsproxy.h>
#include <linux/smp.h>
#include <net/net_namespace.h>

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
 * RDMA core destroys objects one after the other, each of which waits: a fabric that goes down may
 * have thousands, and a normal grace period takes tens of milliseconds.
 */
void rdma_provider_wait_for_readers(void)
{
	synchronize_rcu_expedited();
}

/* Two functions: each INIT_WORK() is a class to lockdep, and they run in different contexts. */
void rdma_provider_work_init(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}

void rdma_provider_bh_work_init(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}

void rdma_provider_work_queue(struct work_struct *work)
{
	queue_work(system_dfl_wq, work);
}

/* On this CPU if @cpu is negative, or offline. */
void rdma_provider_bh_work_queue(int cpu, struct work_struct *work)
{
	if (cpu >= 0 && cpu_online(cpu))
		queue_work_on(cpu, system_bh_wq, work);
	else
		queue_work(system_bh_wq, work);
}

/* The CPU of a completion vector. */
int rdma_provider_vector_cpu(u32 vector)
{
	return cpumask_nth(vector % num_online_cpus(), cpu_online_mask);
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

void rdma_provider_warn_overlap(void)
{
	WARN(1, "two changes of a queue pair at a time\n");
}

/* Names the network namespace of the current task for good: no other gets this number. */
u64 rdma_provider_netns(void)
{
	return current->nsproxy->net_ns->net_cookie;
}

/* The caller has to put it. */
struct net_device *rdma_provider_netdev_find(u64 netns, const char *name)
{
	struct net_device *dev = NULL;
	struct net *net;

	rcu_read_lock();
	for_each_net_rcu(net) {
		if (net->net_cookie != netns)
			continue;
		dev = dev_get_by_name_rcu(net, name);
		dev_hold(dev);
		break;
	}
	rcu_read_unlock();
	return dev;
}

/*
 * As mlx4_ib answers, whatever the link layer is: what sits on the RDMA device's parent, at the
 * port's number. The caller has to put it.
 */
struct net_device *rdma_provider_get_netdev(struct ib_device *device, u32 port)
{
	struct net_device *dev, *found = NULL;

	rcu_read_lock();
	for_each_netdev_rcu(read_pnet(&device->coredev.rdma_net), dev) {
		if (dev->dev.parent != device->dev.parent || dev->dev_port != port - 1)
			continue;
		found = dev;
		dev_hold(found);
		break;
	}
	rcu_read_unlock();
	return found;
}

void rdma_provider_netdev_put(struct net_device *dev)
{
	dev_put(dev);
}

/* Whether it can be the device of a port, and is that of no other device's. */
int rdma_provider_netdev_check(struct net_device *dev)
{
	struct ib_device *other;

	if (dev->type != ARPHRD_ETHER || dev->addr_len != ETH_ALEN || is_vlan_dev(dev))
		return -EINVAL;
	other = ib_device_get_by_netdev(dev, RDMA_DRIVER_UNKNOWN);
	if (!other)
		return 0;
	ib_device_put(other);
	return -EBUSY;
}

/* 0 if it does not run, or has no carrier. */
u32 rdma_provider_netdev_mtu(const struct net_device *dev)
{
	return netif_running(dev) && netif_carrier_ok(dev) ? READ_ONCE(dev->mtu) : 0;
}

bool rdma_provider_is_netdev(struct ib_device *device, u32 port, const struct net_device *dev)
{
	struct net_device *own = ib_device_get_netdev(device, port);

	dev_put(own);
	return own && own == dev;
}
