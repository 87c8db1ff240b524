/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros of the network core that the netdev crate calls.
 */
#ifndef IPOIB_RS_HELPERS_NET_H
#define IPOIB_RS_HELPERS_NET_H

#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/ethtool.h>
#include <linux/seq_file.h>
#include <linux/hrtimer.h>
#include <linux/netdevice.h>
#include <linux/workqueue.h>
#include <net/netlink.h>
#include <net/rtnetlink.h>

/* Transmit: called once a frame. */
bool ipoib_rs_tx_sent(struct net_device *dev, unsigned int bytes);
bool ipoib_rs_tx_more(const struct net_device *dev);
bool ipoib_rs_tx_completed(struct net_device *dev, const struct napi_struct *napi,
			   unsigned int frames, unsigned int bytes);
void ipoib_rs_tx_stop(struct net_device *dev);
void ipoib_rs_tx_wake(struct net_device *dev);
void ipoib_rs_tx_reset(struct net_device *dev, const struct napi_struct *napi);
bool ipoib_rs_tx_owned(const struct net_device *dev);
void ipoib_rs_tx_lock(struct net_device *dev);
void ipoib_rs_tx_unlock(struct net_device *dev);

/* Device life cycle. */
struct ipoib_rs_layout {
	u16 arp_type;
	u8 addr_len;
	u8 header_len;
	u16 tx_queue_len;
	int watchdog_jiffies;
};

void ipoib_rs_netdev_setup(struct net_device *dev,
			   const struct ipoib_rs_layout *layout);
struct net_device *ipoib_rs_netdev_alloc(int priv_size, const char *name,
					 void (*setup)(struct net_device *dev), struct net *net,
					 const struct rtnl_link_ops *ops);
int ipoib_rs_netdev_set_up(struct net_device *dev, bool up);
void ipoib_rs_netdev_unregister(struct net_device *dev, struct list_head *list);
bool ipoib_rs_net_ends(const struct net *net);
void ipoib_rs_netdev_set_addr(struct net_device *dev, const u8 *addr);
void ipoib_rs_netdev_bond_follows(struct net_device *dev, const u8 *before);
const void *ipoib_rs_address_of(const void *sockaddr);
bool ipoib_rs_netdev_can_send(const struct net_device *dev);
bool ipoib_rs_netif_running(const struct net_device *dev);
void ipoib_rs_netdev_wait_unused(const struct net_device *dev);
void ipoib_rs_netdev_hold(struct net_device *dev, netdevice_tracker *tracker);
void ipoib_rs_netdev_put(struct net_device *dev, netdevice_tracker *tracker);
struct net_device *ipoib_rs_newlink_lower(struct rtnl_newlink_params *params);
struct net *ipoib_rs_newlink_net(struct rtnl_newlink_params *params);
u32 ipoib_rs_newlink_mtu(struct rtnl_newlink_params *params);
struct net *ipoib_rs_netdev_net(const struct net_device *dev);
int ipoib_rs_restart(struct net_device *dev);

void ipoib_rs_netdev_set_offloads(struct net_device *dev, u64 offered, u64 defaults);
void ipoib_rs_netdev_keep_dst(struct net_device *dev);

/*
 * A kind of link: what rtnetlink knows of it, and the files of its devices in sysfs, by their
 * numbers. @files is NULL where there are none. @show returns a length or an error, @store 0 or an
 * error, @has whether a device that is being registered has the file.
 */
struct ipoib_rs_kind {
	struct rtnl_link_ops ops;
	const struct attribute_group *files;
	bool (*has)(struct net_device *dev, unsigned int id);
	int (*show)(struct net_device *dev, unsigned int id, char *page);
	int (*store)(struct net_device *dev, unsigned int id, const char *text, size_t len);
};

/* A file in sysfs. */
struct ipoib_rs_attr {
	struct device_attribute attr;
	unsigned int id;
};

struct attribute *ipoib_rs_attr_init(struct ipoib_rs_attr *attr, const char *name, u16 mode,
				     unsigned int id);
void ipoib_rs_attr_group_init(struct attribute_group *group, struct attribute **attrs);
void ipoib_rs_netdev_add_files(struct net_device *dev);

/* NAPI. */
void ipoib_rs_napi_add(struct net_device *dev, struct napi_struct *napi,
		       int (*poll)(struct napi_struct *napi, int budget), bool tx);
void ipoib_rs_napi_del(struct napi_struct *napi);
void ipoib_rs_netdev_lock(struct net_device *dev);
void ipoib_rs_netdev_unlock(struct net_device *dev);
void ipoib_rs_timer_start(struct hrtimer *timer, u32 us);
bool ipoib_rs_timer_is_exact(u32 us);

/* Ethtool: the kinds of coalescing that there are. BIT() is beyond bindgen. */
enum {
	IPOIB_RS_COALESCE = ETHTOOL_COALESCE_RX_USECS | ETHTOOL_COALESCE_RX_MAX_FRAMES,
};

/* Sysctl. */
int ipoib_rs_restart_syscall(void);

struct dentry *ipoib_rs_debugfs_dir(const char *name, struct dentry *parent);
void ipoib_rs_debugfs_file(const char *name, struct dentry *parent, void *data,
			   const struct file_operations *fops);
void ipoib_rs_debugfs_remove(struct dentry *dir);

/* Work. */
void ipoib_rs_device_work_init(struct delayed_work *work, work_func_t func);
void ipoib_rs_free_work_init(struct delayed_work *work, work_func_t func);

enum ipoib_rs_wq {
	/* For what is waited for under RTNL. */
	IPOIB_RS_WQ_DEVICE,
	/* For what takes RTNL. */
	IPOIB_RS_WQ_RTNL,
	/* The system's, for what waits for work of the system's. */
	IPOIB_RS_WQ_SYSTEM,
};

int ipoib_rs_wq_create(void);
void ipoib_rs_wq_destroy(void);
void ipoib_rs_wq_get(void);
void ipoib_rs_wq_put(void);
bool ipoib_rs_work_queue(struct work_struct *work, bool patient);
void ipoib_rs_delayed_work_queue(enum ipoib_rs_wq which, struct delayed_work *work,
				 unsigned int delay_ms);

/* Netlink. */
int ipoib_rs_nla_put_text(struct sk_buff *skb, int type, const char *text, size_t len);
size_t ipoib_rs_nla_total_size(int payload);

/* Logging; `args` is a Rust fmt::Arguments. */
void ipoib_rs_netdev_printk(const char *level, const struct net_device *dev,
			    const void *args, bool limited);

/* Tests. */
#if IS_BUILTIN(CONFIG_KUNIT)
unsigned int ipoib_rs_fail_nth(unsigned int nth);
void ipoib_rs_mark_skipped(const char *reason);
#endif

#endif
