// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros of the network core that the netdev crate calls. All of them serve
 * devices with a single transmit queue.
 */

#include "helpers_net.h"

#include <kunit/test-bug.h>
#include <kunit/test.h>
#include <linux/capability.h>
#include <linux/device.h>
#include <linux/rtnetlink.h>
#include <linux/sched/signal.h>
#include <linux/sysfs.h>
#include <net/netdev_queues.h>
#include <net/sch_generic.h>

static struct netdev_queue *txq(const struct net_device *dev)
{
	return netdev_get_tx_queue(dev, 0);
}

/* Whether this context holds the lock of the queue; no other one on this CPU does meanwhile. */
static bool owned(struct netdev_queue *txq)
{
	return likely(netif_tx_owned(txq, raw_smp_processor_id()));
}

/*
 * Accounts a frame to BQL, if the caller holds the transmit lock and an instance completes what the
 * queue sends: nobody else would take it off. True: the caller has to ring the doorbell now.
 */
bool ipoib_rs_tx_sent(struct net_device *dev, unsigned int bytes)
{
	struct netdev_queue *queue = txq(dev);

	if (!owned(queue) || unlikely(!READ_ONCE(queue->napi)))
		return true;

#ifdef CONFIG_BQL
	/* All ones; the kernel warns of more. */
	bytes &= DQL_MAX_OBJECT;
#endif
	return __netdev_tx_sent_queue(queue, bytes, netdev_xmit_more());
}

/* Whether the stack hands over another frame at once. */
bool ipoib_rs_tx_more(const struct net_device *dev)
{
	struct netdev_queue *queue = txq(dev);

	return owned(queue) && netdev_xmit_more() && !netif_xmit_stopped(queue);
}

/* Those of @bytes that BQL knows of. The kernel stops if it is told of others. */
static unsigned int known(const struct netdev_queue *txq, unsigned int bytes)
{
#ifdef CONFIG_BQL
	const struct dql *dql = &txq->dql;

	bytes = min(bytes, READ_ONCE(dql->num_queued) - dql->num_completed);
#endif
	return bytes;
}

/*
 * Whether the queue is stopped then, as seen behind a full barrier. @napi is polled by the caller;
 * frames are completed by the instance of the queue, which is polled by nobody else meanwhile.
 */
bool ipoib_rs_tx_completed(struct net_device *dev, const struct napi_struct *napi,
			   unsigned int frames, unsigned int bytes)
{
	bytes = likely(READ_ONCE(txq(dev)->napi) == napi) ? known(txq(dev), bytes) : 0;
	netdev_txq_completed_mb(txq(dev), frames, bytes);
	if (!bytes)
		smp_mb(); /* Pairs with those behind which the driver looks for room again. */
	return netif_tx_queue_stopped(txq(dev));
}

void ipoib_rs_tx_stop(struct net_device *dev)
{
	netif_tx_stop_queue(txq(dev));
}

void ipoib_rs_tx_wake(struct net_device *dev)
{
	netif_tx_wake_queue(txq(dev));
}

/* Has BQL forget what was sent, if @napi, whose poll has no state, is the one that completes it. */
void ipoib_rs_tx_reset(struct net_device *dev, const struct napi_struct *napi)
{
	struct netdev_queue *queue = txq(dev);

	if (READ_ONCE(queue->napi) != napi)
		return;

	__netif_tx_lock_bh(queue);
	netdev_tx_reset_queue(queue);
	__netif_tx_unlock_bh(queue);
}

/* Whether this context holds the transmit lock. */
bool ipoib_rs_tx_owned(const struct net_device *dev)
{
	return owned(txq(dev));
}

void ipoib_rs_tx_lock(struct net_device *dev)
{
	__netif_tx_lock_bh(txq(dev));
}

void ipoib_rs_tx_unlock(struct net_device *dev)
{
	__netif_tx_unlock_bh(txq(dev));
}

void ipoib_rs_netdev_setup(struct net_device *dev,
			   const struct ipoib_rs_layout *layout)
{
	dev->type = layout->arp_type;
	dev->addr_len = layout->addr_len;
	dev->hard_header_len = layout->header_len;
	/* All of it, always: packet sockets refuse what is shorter. */
	dev->min_header_len = layout->header_len;
	dev->tx_queue_len = layout->tx_queue_len;
	dev->watchdog_timeo = layout->watchdog_jiffies;
	dev->flags |= IFF_BROADCAST | IFF_MULTICAST;
	/* What netpoll sends begins with an Ethernet header. */
	dev->priv_flags |= IFF_DISABLE_NETPOLL;
	dev->features |= NETIF_F_VLAN_CHALLENGED | NETIF_F_HIGHDMA;
	dev->needs_free_netdev = true;
}

/* A device of kind @ops with a single queue in @net, to be registered there; or NULL. */
struct net_device *ipoib_rs_netdev_alloc(int priv_size, const char *name,
					 void (*setup)(struct net_device *dev), struct net *net,
					 const struct rtnl_link_ops *ops)
{
	unsigned char assigned = strchr(name, '%') ? NET_NAME_ENUM : NET_NAME_PREDICTABLE;
	struct net_device *dev = alloc_netdev(priv_size, name, assigned, setup);

	if (!dev)
		return NULL;

	dev_net_set(dev, net);
	dev->rtnl_link_ops = ops;
	return dev;
}

/* Takes an interface up or down, as a user does, under RTNL. */
int ipoib_rs_netdev_set_up(struct net_device *dev, bool up)
{
	if (up)
		return dev_open(dev, NULL);

	dev_close(dev);
	return 0;
}

/*
 * Of no effect unless the device is registered, and nobody unregisters it already, or has it on a
 * list of those to be unregistered: the kernel would stop, or take it off that list.
 */
void ipoib_rs_netdev_unregister(struct net_device *dev, struct list_head *list)
{
	if (dev->reg_state == NETREG_REGISTERED && !dev->dismantle && list_empty(&dev->unreg_list))
		unregister_netdevice_queue(dev, list);
}

/* Whether the namespace is going away, and all devices in it. */
bool ipoib_rs_net_ends(const struct net *net)
{
	return !check_net(net);
}

void ipoib_rs_netdev_set_addr(struct net_device *dev, const u8 *addr)
{
	__dev_addr_set(dev, addr, dev->addr_len);
	/* Netlink has noted that one was given, which is not the one that the device has. */
	dev->addr_assign_type = NET_ADDR_PERM;
}

/*
 * Bonding copies the active slave's address at a failover, and ignores later changes of it. If the
 * bond over @dev has the address that was @dev's @before, it gets the new one here; nobody can
 * object, since the slave has it already. RTNL is held.
 */
void ipoib_rs_netdev_bond_follows(struct net_device *dev, const u8 *before)
{
	struct net_device *bond = netdev_master_upper_dev_get(dev);

	if (!bond || !netif_is_bond_master(bond) || bond->addr_len != dev->addr_len ||
	    memcmp(bond->dev_addr, before, dev->addr_len))
		return;
	__dev_addr_set(bond, dev->dev_addr, dev->addr_len);
	call_netdevice_notifiers(NETDEV_CHANGEADDR, bond);
	__netdev_notify_peers(bond);
}

/* The address in a struct sockaddr_storage. */
const void *ipoib_rs_address_of(const void *sockaddr)
{
	const struct sockaddr_storage *storage = sockaddr;

	return storage->__data;
}

/* Without a carrier the stack drops what is sent, and until it has looked at one that is new. */
bool ipoib_rs_netdev_can_send(const struct net_device *dev)
{
	return netif_carrier_ok(dev) && !qdisc_tx_is_noop(dev);
}

bool ipoib_rs_netif_running(const struct net_device *dev)
{
	return netif_running(dev);
}

/* Waits until nobody refers to @dev but who made it, as the core does with a registered one. */
void ipoib_rs_netdev_wait_unused(const struct net_device *dev)
{
	unsigned long warn_at = jiffies + 10 * HZ;
	int others;

	while ((others = netdev_refcnt_read(dev) - 1) != 0) {
		if (time_after(jiffies, warn_at)) {
			netdev_emerg(dev, "waiting for %d references\n", others);
			warn_at = jiffies + 10 * HZ;
		}
		fsleep(USEC_PER_MSEC);
	}
}

void ipoib_rs_netdev_hold(struct net_device *dev, netdevice_tracker *tracker)
{
	netdev_hold(dev, tracker, GFP_ATOMIC);
}

void ipoib_rs_netdev_put(struct net_device *dev, netdevice_tracker *tracker)
{
	netdev_put(dev, tracker);
}

/*
 * The netdev that IFLA_LINK names, under RTNL and without a reference; NULL without that attribute,
 * and an error pointer if there is no such netdev.
 */
struct net_device *ipoib_rs_newlink_lower(struct rtnl_newlink_params *params)
{
	struct net_device *lower;

	if (!params->tb[IFLA_LINK])
		return NULL;

	lower = __dev_get_by_index(rtnl_newlink_link_net(params),
				   nla_get_u32(params->tb[IFLA_LINK]));
	return lower ?: ERR_PTR(-ENODEV);
}

/* The namespace in which a request names what is there already. */
struct net *ipoib_rs_newlink_net(struct rtnl_newlink_params *params)
{
	return rtnl_newlink_link_net(params);
}

u32 ipoib_rs_newlink_mtu(struct rtnl_newlink_params *params)
{
	return params->tb[IFLA_MTU] ? nla_get_u32(params->tb[IFLA_MTU]) : 0;
}

struct net *ipoib_rs_netdev_net(const struct net_device *dev)
{
	return dev_net(dev);
}

/*
 * Takes a running interface down and up again, under RTNL, without telling user space. If it does
 * not come up, it stays up for user space, without a carrier.
 */
int ipoib_rs_restart(struct net_device *dev)
{
	const struct net_device_ops *ops = dev->netdev_ops;

	if (!netif_running(dev))
		return 0;

	ops->ndo_stop(dev);
	return ops->ndo_open(dev);
}

/*
 * Features that the driver offers at some times and at others does not, under RTNL. Of those that
 * are new, @defaults are switched on.
 */
void ipoib_rs_netdev_set_offloads(struct net_device *dev, u64 offered, u64 defaults)
{
	const netdev_features_t all = NETIF_F_CSUM_MASK | NETIF_F_RXCSUM | NETIF_F_ALL_TSO |
				      NETIF_F_GSO_UDP_L4;
	netdev_features_t lost = dev->hw_features & all & ~offered;
	netdev_features_t gained = offered & ~dev->hw_features;
	netdev_features_t on = gained & defaults;

	if (!lost && !gained)
		return;

	dev->hw_features = (dev->hw_features & ~lost) | gained;
	dev->features &= ~lost;
	if (dev->reg_state == NETREG_REGISTERED) {
		dev->wanted_features = (dev->wanted_features & ~lost) | on;
		netdev_change_features(dev);
	} else {
		/* Registration takes what there is for what is wanted. */
		dev->features |= on;
	}
}

void ipoib_rs_netdev_keep_dst(struct net_device *dev)
{
	bool released = dev->priv_flags & IFF_XMIT_DST_RELEASE;

	netif_keep_dst(dev);
	/* A bond does as its ports, but looks only when it is told. */
	if (released && dev->reg_state == NETREG_REGISTERED)
		netdev_features_change(dev);
}

static const struct ipoib_rs_kind *kind_of(const struct net_device *dev)
{
	return container_of(dev->rtnl_link_ops, const struct ipoib_rs_kind, ops);
}

static const struct ipoib_rs_attr *attr_of(struct device_attribute *attr)
{
	return container_of(attr, const struct ipoib_rs_attr, attr);
}

static ssize_t file_attr_show(struct device *d, struct device_attribute *attr, char *page)
{
	struct net_device *dev = to_net_dev(d);

	return kind_of(dev)->show(dev, attr_of(attr)->id, page);
}

static ssize_t file_attr_store(struct device *d, struct device_attribute *attr, const char *text,
			       size_t len)
{
	struct net_device *dev = to_net_dev(d);
	int err;

	if (!ns_capable(dev_net(dev)->user_ns, CAP_NET_ADMIN))
		return -EPERM;

	err = kind_of(dev)->store(dev, attr_of(attr)->id, text, len);
	return err ?: len;
}

static umode_t file_attr_visible(struct kobject *kobj, struct attribute *attr, int n)
{
	struct net_device *dev = to_net_dev(kobj_to_dev(kobj));

	return kind_of(dev)->has(dev, n) ? attr->mode : 0;
}

/* Returns the part of @attr that a group has. */
struct attribute *ipoib_rs_attr_init(struct ipoib_rs_attr *attr, const char *name, u16 mode,
				     unsigned int id)
{
	sysfs_attr_init(&attr->attr.attr);
	attr->attr.attr.name = name;
	attr->attr.attr.mode = mode;
	attr->attr.show = file_attr_show;
	attr->attr.store = file_attr_store;
	attr->id = id;
	return &attr->attr.attr;
}

void ipoib_rs_attr_group_init(struct attribute_group *group, struct attribute **attrs)
{
	group->attrs = attrs;
	group->is_visible = file_attr_visible;
}

/* To be called before the device, which is of an ipoib_rs_kind, is registered. */
void ipoib_rs_netdev_add_files(struct net_device *dev)
{
	dev->sysfs_groups[0] = kind_of(dev)->files;
}

void ipoib_rs_napi_add(struct net_device *dev, struct napi_struct *napi,
		       int (*poll)(struct napi_struct *napi, int budget), bool tx)
{
	if (tx)
		netif_napi_add_tx(dev, napi, poll);
	else
		netif_napi_add(dev, napi, poll);
}

void ipoib_rs_napi_del(struct napi_struct *napi)
{
	netif_napi_del(napi);
}

void ipoib_rs_netdev_lock(struct net_device *dev)
{
	netdev_lock(dev);
}

void ipoib_rs_netdev_unlock(struct net_device *dev)
{
	netdev_unlock(dev);
}

void ipoib_rs_timer_start(struct hrtimer *timer, u32 us)
{
	hrtimer_start(timer, us_to_ktime(us), HRTIMER_MODE_REL_PINNED);
}

/* Whether timers of so short a time expire by themselves, and not with the next tick. */
bool ipoib_rs_timer_is_exact(u32 us)
{
	return hrtimer_resolution < us * NSEC_PER_USEC;
}

int ipoib_rs_restart_syscall(void)
{
	return restart_syscall();
}

/*
 * Two places, so that lockdep has two classes: RTNL may be held where what belongs to an interface
 * is waited for, and may be taken by what belongs to none.
 */
void ipoib_rs_device_work_init(struct delayed_work *work, work_func_t func)
{
	INIT_DELAYED_WORK(work, func);
}

void ipoib_rs_free_work_init(struct delayed_work *work, work_func_t func)
{
	INIT_DELAYED_WORK(work, func);
}

/*
 * Two queues with a rescuer each, so that memory can come free through an interface (NFS, swap).
 * Work of interfaces is waited for under RTNL, and so must not queue behind work that takes RTNL.
 * Before they are made, and in modules that have none, the system's has to do.
 */
static struct workqueue_struct *wqs[] = {
	[IPOIB_RS_WQ_DEVICE] = NULL,
	[IPOIB_RS_WQ_RTNL] = NULL,
};

static const char * const wq_names[] = {
	[IPOIB_RS_WQ_DEVICE] = "ipoib_rs_device",
	[IPOIB_RS_WQ_RTNL] = "ipoib_rs_rtnl",
};

/* Whether there are some, or they are just being made or destroyed. */
static unsigned long wqs_exist;

/* Owners of delayed work that may be queued. */
static atomic_t wq_users = ATOMIC_INIT(0);

/* Before any work is queued. -EBUSY if there are some. */
int ipoib_rs_wq_create(void)
{
	struct workqueue_struct *wq;
	int i;

	if (test_and_set_bit(0, &wqs_exist))
		return -EBUSY;

	for (i = 0; i < ARRAY_SIZE(wqs); i++) {
		wq = alloc_workqueue("%s", WQ_UNBOUND | WQ_MEM_RECLAIM, 0, wq_names[i]);
		if (!wq) {
			ipoib_rs_wq_destroy();
			return -ENOMEM;
		}
		WRITE_ONCE(wqs[i], wq);
	}
	return 0;
}

/*
 * After the last work has ended. A timer of work that has not would use the queue later, so that
 * the queues stay for ever then.
 */
void ipoib_rs_wq_destroy(void)
{
	struct workqueue_struct *old[ARRAY_SIZE(wqs)];
	int i;

	for (i = 0; i < ARRAY_SIZE(wqs); i++)
		old[i] = xchg(&wqs[i], NULL);
	/* For those who have found them there still. */
	synchronize_rcu();
	if (atomic_read_acquire(&wq_users)) {
		pr_warn(KBUILD_MODNAME ": work outlives its queues\n");
	} else {
		for (i = 0; i < ARRAY_SIZE(wqs); i++)
			if (old[i])
				destroy_workqueue(old[i]);
	}
	clear_bit_unlock(0, &wqs_exist);
}

/* Before delayed work is queued. */
void ipoib_rs_wq_get(void)
{
	atomic_inc(&wq_users);
}

/* When it was disabled. */
void ipoib_rs_wq_put(void)
{
	atomic_fetch_dec_release(&wq_users);
}

/* Under RCU. */
static struct workqueue_struct *wq_of(enum ipoib_rs_wq which)
{
	return (which < ARRAY_SIZE(wqs) ? READ_ONCE(wqs[which]) : NULL) ?: system_dfl_wq;
}

/* Work that is @patient may run for any time, and delays no other. */
bool ipoib_rs_work_queue(struct work_struct *work, bool patient)
{
	guard(rcu)();
	return queue_work(patient ? system_dfl_long_wq : wq_of(IPOIB_RS_WQ_DEVICE), work);
}

/* Work that is queued already keeps its time if that is earlier. */
void ipoib_rs_delayed_work_queue(enum ipoib_rs_wq which, struct delayed_work *work,
				 unsigned int delay_ms)
{
	unsigned long delay = msecs_to_jiffies(delay_ms);
	struct workqueue_struct *wq;

	guard(rcu)();
	wq = wq_of(which);
	if (delay && queue_delayed_work(wq, work, delay))
		return;
	/*
	 * Late by this delay if the timer runs meanwhile, or by the other one if that is just being
	 * set.
	 */
	if (!delay || (timer_pending(&work->timer) &&
		       time_after(READ_ONCE(work->timer.expires), jiffies + delay)))
		mod_delayed_work(wq, work, delay);
}

/* A string of @len bytes, with a zero behind it. */
int ipoib_rs_nla_put_text(struct sk_buff *skb, int type, const char *text, size_t len)
{
	struct nlattr *attr = nla_reserve(skb, type, len + 1);

	if (!attr)
		return -EMSGSIZE;

	memcpy(nla_data(attr), text, len);
	((char *)nla_data(attr))[len] = 0;
	return 0;
}

size_t ipoib_rs_nla_total_size(int payload)
{
	return nla_total_size(payload);
}

struct dentry *ipoib_rs_debugfs_dir(const char *name, struct dentry *parent)
{
	return debugfs_create_dir(name, parent);
}

void ipoib_rs_debugfs_file(const char *name, struct dentry *parent, void *data,
			   const struct file_operations *fops)
{
	debugfs_create_file(name, 0400, parent, data, fops);
}

void ipoib_rs_debugfs_remove(struct dentry *dir)
{
	debugfs_remove(dir);
}

void ipoib_rs_netdev_printk(const char *level, const struct net_device *dev,
			    const void *args, bool limited)
{
	if (limited && !net_ratelimit())
		return;

	netdev_printk(level, dev, "%pA", args);
}

#if IS_BUILTIN(CONFIG_KUNIT)
/*
 * Has the allocation fail that is the current task's @nth from now on; 0 is none. Returns how many
 * it was still from failing: 0 if one has failed.
 */
unsigned int ipoib_rs_fail_nth(unsigned int nth)
{
	unsigned int left = 1;

#ifdef CONFIG_FAULT_INJECTION
	left = current->fail_nth;
	current->fail_nth = nth;
#endif
	return left;
}

/* Says why the running test has nothing to test. It goes on. */
void ipoib_rs_mark_skipped(const char *reason)
{
	kunit_mark_skipped(kunit_get_current_test(), "%s", reason);
}
#endif
