// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros of the RDMA core that the rdma crate calls.
 */

#include "helpers_rdma.h"

#include <kunit/static_stub.h>
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/if_arp.h>
#include <linux/inetdevice.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/stop_machine.h>
#include <linux/string.h>
#include <net/addrconf.h>
#include <net/net_namespace.h>
#include <rdma/ib_cache.h>

bool ipoib_rs_ib_device_try_get(struct ib_device *device)
{
	return ib_device_try_get(device);
}

u32 ipoib_rs_ib_start_port(const struct ib_device *device)
{
	return rdma_start_port(device);
}

u32 ipoib_rs_ib_end_port(const struct ib_device *device)
{
	return rdma_end_port(device);
}

bool ipoib_rs_ib_is_roce(const struct ib_device *device, u32 port)
{
	return rdma_is_port_valid(device, port) && rdma_protocol_roce(device, port);
}

/*
 * The netdev that a RoCE port runs over, with a reference, or NULL. On an InfiniBand port, mlx4
 * names what is registered at its place in sysfs, such as an interface of this driver.
 */
struct net_device *ipoib_rs_ib_netdev(struct ib_device *device, u32 port)
{
	return ipoib_rs_ib_is_roce(device, port) ? ib_device_get_netdev(device, port) : NULL;
}

/* Omni-Path has what it takes from InfiniBand, but other MTUs and longer LIDs. */
bool ipoib_rs_ib_is_ib(struct ib_device *device, u32 port)
{
	return rdma_is_port_valid(device, port) && rdma_protocol_ib(device, port) &&
	       !rdma_cap_opa_ah(device, port);
}

/* Known without asking the device, which takes RTNL on RoCE. */
int ipoib_rs_ib_gid_table_len(const struct ib_device *device, u32 port)
{
	if (!rdma_is_port_valid(device, port))
		return 0;

	return device->port_data[port].immutable.gid_tbl_len;
}

enum ipoib_rs_gid_owner ipoib_rs_ib_gid_owner(const struct ib_gid_attr *attr)
{
	enum ipoib_rs_gid_owner owner = IPOIB_RS_GID_OTHER;
	struct net_device *own, *ndev;

	own = ipoib_rs_ib_netdev(attr->device, attr->port_num);
	if (!own)
		return owner;

	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(attr);
	if (ndev == own)
		owner = IPOIB_RS_GID_OWN;
	else if (!IS_ERR(ndev) && netif_is_bond_master(ndev) &&
		 netdev_master_upper_dev_get_rcu(own) == ndev)
		owner = IPOIB_RS_GID_BOND;
	rcu_read_unlock();
	dev_put(own);
	return owner;
}

/*
 * Whether the netdev of a GID has it as an IPv6 address. The core keeps the default GID, which it
 * makes from the Ethernet address, whether the netdev has that address or not, and takes others
 * before duplicate address detection is through.
 */
enum ipoib_rs_gid_address ipoib_rs_ib_gid_address(const struct ib_gid_attr *attr)
{
	const struct in6_addr *addr = (const struct in6_addr *)attr->gid.raw;
	enum ipoib_rs_gid_address found = IPOIB_RS_GID_NO_ADDRESS;
	struct net_device *ndev;

	/* Booted with ipv6.disable=1, IPv6 has no table of addresses to look into. */
	if (!ipv6_mod_enabled())
		return found;

	rcu_read_lock();
	ndev = rdma_read_gid_attr_ndev_rcu(attr);
	if (IS_ERR(ndev))
		goto unlock;

	if (ipv6_chk_addr(dev_net(ndev), addr, ndev, 1))
		found = IPOIB_RS_GID_ADDRESS;
	/* Before the link is up, detection does not begin. */
	else if (netif_oper_up(ndev) &&
		 ipv6_chk_addr_and_flags(dev_net(ndev), addr, ndev, false, 1, IFA_F_DADFAILED))
		found = IPOIB_RS_GID_TENTATIVE;
unlock:
	rcu_read_unlock();
	return found;
}

/* Whether a port of @device has GIDs of @ndev. */
bool ipoib_rs_ib_has_gids_of(struct ib_device *device, const struct net_device *ndev)
{
	const struct ib_gid_attr *attr;
	bool found = false;
	u32 port;
	int i;

	rdma_for_each_port(device, port) {
		if (!rdma_protocol_roce(device, port))
			continue;
		for (i = 0; !found && i < ipoib_rs_ib_gid_table_len(device, port); i++) {
			attr = rdma_get_gid_attr(device, port, i);
			if (IS_ERR(attr))
				continue;
			rcu_read_lock();
			found = rdma_read_gid_attr_ndev_rcu(attr) == ndev;
			rcu_read_unlock();
			rdma_put_gid_attr(attr);
		}
	}
	return found;
}

struct net *ipoib_rs_ib_net(const struct ib_device *device)
{
	return read_pnet(&device->coredev.rdma_net);
}

bool ipoib_rs_ib_is_visible(const struct ib_device *device, const struct net *net)
{
	return rdma_dev_access_netns(device, net);
}

/*
 * Whether the caller may configure @device. In shared mode, devices of the host are visible in
 * namespaces that others administer.
 */
bool ipoib_rs_ib_may_configure(const struct ib_device *device)
{
	return ns_capable(read_pnet(&device->coredev.rdma_net)->user_ns, CAP_NET_ADMIN);
}

/* How many virtual functions are there: the parent's, such as a PCI function's. */
int ipoib_rs_ib_num_vf(const struct ib_device *device)
{
	return device->dev.parent ? dev_num_vf(device->dev.parent) : 0;
}

/*
 * Whether @ndev is an IPoIB interface on the port, of whatever driver. All of them say so in sysfs
 * by device and dev_port, see ipoib_rs_ib_place(); children do not.
 */
bool ipoib_rs_ib_carries(const struct ib_device *device, u32 port, const struct net_device *ndev)
{
	return ndev->type == ARPHRD_INFINIBAND && device->dev.parent &&
	       ndev->dev.parent == device->dev.parent && ndev->dev_port == port - 1;
}

static bool listens(struct net_device *ndev, const union ib_gid *mgid)
{
	struct netdev_hw_addr *ha;
	bool found = false;

	if (!netif_running(ndev))
		return false;

	netif_addr_lock_bh(ndev);
	netdev_for_each_mc_addr(ha, ndev)
		found = found || !memcmp(ha->addr + 4, mgid, sizeof(*mgid));
	netif_addr_unlock_bh(ndev);
	return found;
}

/*
 * Whether a driver other than that of @own has an IPoIB interface on the port, in whatever
 * namespace; if @mgid is not NULL, one that is up and listens to that group.
 */
bool ipoib_rs_ib_is_shared(const struct ib_device *device, u32 port, const struct net_device *own,
			   const union ib_gid *mgid)
{
	struct net_device *ndev;
	bool found = false;
	struct net *net;

	rcu_read_lock();
	for_each_net_rcu(net) {
		for_each_netdev_rcu(net, ndev)
			found = found || (ipoib_rs_ib_carries(device, port, ndev) &&
					  ndev->netdev_ops != own->netdev_ops &&
					  (!mgid || listens(ndev, mgid)));
	}
	rcu_read_unlock();
	return found;
}

/* The index of the port's netdev, or 0. */
int ipoib_rs_ib_netdev_ifindex(struct ib_device *device, u32 port)
{
	struct net_device *ndev = ipoib_rs_ib_netdev(device, port);
	int ifindex;

	if (!ndev)
		return 0;

	ifindex = ndev->ifindex;
	dev_put(ndev);
	return ifindex;
}

void ipoib_rs_dev_put(struct net_device *ndev)
{
	dev_put(ndev);
}

bool ipoib_rs_ib_is_netdev(struct ib_device *device, u32 port,
			   const struct net_device *ndev)
{
	struct net_device *ours = ipoib_rs_ib_netdev(device, port);

	dev_put(ours);
	return ours == ndev;
}

const char *ipoib_rs_ib_parent_name(const struct ib_device *device)
{
	return device->dev.parent ? dev_name(device->dev.parent) : NULL;
}

/*
 * Notes in sysfs where a network device sits: udev names it by that. As with ib_ipoib, dev_id is
 * the port, too, for programs that do not know of dev_port.
 */
void ipoib_rs_ib_place(const struct ib_device *device, u32 port, struct net_device *ndev)
{
	if (ndev->reg_state != NETREG_UNINITIALIZED)
		return;

	SET_NETDEV_DEV(ndev, device->dev.parent);
	ndev->dev_port = port - 1;
	ndev->dev_id = port - 1;
}

static bool has_address(struct net_device *dev, const struct sockaddr *addr)
{
	const void *any = addr;

	if (addr->sa_family == AF_INET) {
		const struct sockaddr_in *in = any;
		struct in_device *in_dev = __in_dev_get_rcu(dev);

		return in_dev && inet_confirm_addr(dev_net(dev), in_dev, 0, in->sin_addr.s_addr,
						   RT_SCOPE_HOST);
	}
	/* Booted with ipv6.disable=1, IPv6 has no table of addresses to look into. */
	if (ipv6_mod_enabled() && addr->sa_family == AF_INET6) {
		const struct sockaddr_in6 *in6 = any;

		return ipv6_chk_addr(dev_net(dev), &in6->sin6_addr, dev, 1);
	}
	return false;
}

struct address_search {
	const struct sockaddr *addr;
	struct net_device *found;
};

static int look_at_upper(struct net_device *upper, struct netdev_nested_priv *priv)
{
	struct address_search *search = priv->data;

	if (!has_address(upper, search->addr))
		return 0;

	search->found = upper;
	return 1;
}

/* @ndev or one on top of it that has the IP address @addr, with a reference; or NULL. */
struct net_device *ipoib_rs_ib_with_address(struct net_device *ndev, const struct sockaddr *addr)
{
	struct address_search search = { .addr = addr };
	struct netdev_nested_priv priv = { .data = &search };

	if (!addr)
		return NULL;

	rcu_read_lock();
	if (has_address(ndev, addr))
		search.found = ndev;
	else
		netdev_walk_all_upper_dev_rcu(ndev, look_at_upper, &priv);
	dev_hold(search.found);
	rcu_read_unlock();
	return search.found;
}

/* @ndev or, if it has one that is no VRF, its master, with a reference. */
struct net_device *ipoib_rs_ib_topmost(struct net_device *ndev)
{
	struct net_device *master;

	rcu_read_lock();
	master = netdev_master_upper_dev_get_rcu(ndev);
	if (master && !netif_is_l3_master(master))
		ndev = master;
	dev_hold(ndev);
	rcu_read_unlock();
	return ndev;
}

u32 ipoib_rs_ib_speed_mbps(struct ib_port_attr *attr)
{
	struct ib_port_speed_info info;

	/* The rate is in units of 100 Mbit/s. */
	return ib_port_attr_to_speed_info(attr, &info) ? 0 : info.rate * 100;
}

int ipoib_rs_ib_mtu_bytes(enum ib_mtu mtu)
{
	return ib_mtu_enum_to_int(mtu);
}

/* NULL if a DMA address of @device is just a kernel address. */
struct device *ipoib_rs_ib_dma_device(struct ib_device *device)
{
	return ib_uses_virt_dma(device) ? NULL : device->dma_device;
}

void ipoib_rs_ib_event_handler_init(struct ib_event_handler *handler,
				    struct ib_device *device,
				    void (*func)(struct ib_event_handler *handler,
						 struct ib_event *event))
{
	INIT_IB_EVENT_HANDLER(handler, device, func);
}

/* The module is not to be unloaded any more, since a device may call it. False: it already is. */
bool ipoib_rs_keep_module(void)
{
	return try_module_get(THIS_MODULE);
}

/*
 * A handler for an object that stays when the module goes: a function of the kernel's that looks
 * at none of its arguments. Few devices check that there is a completion handler.
 */
void *ipoib_rs_noop(void)
{
	/* This module is built without CONFIG_CFI, which would look at the function's type. */
	return noop_fsync;
}

static int nothing(void *unused)
{
	return 0;
}

/*
 * Waits for those who have read the address of a handler before it was replaced, and are about to
 * call it: in interrupts, or in work, for which RCU need not wait. Without preemption, these calls
 * are over when each CPU has been through the scheduler. With preemption, work may have been
 * preempted at that point. Returns false if the kernel cannot tell when such work has gone on.
 */
bool ipoib_rs_wait_for_calls(void)
{
	if (!IS_ENABLED(CONFIG_PREEMPTION)) {
		stop_machine(nothing, NULL, NULL);
		return true;
	}
	synchronize_rcu_tasks();
	return IS_ENABLED(CONFIG_TASKS_RCU);
}

/* The name of an object that stays when the module goes. */
void ipoib_rs_copy_name(struct rdma_restrack_entry *res)
{
	WRITE_ONCE(res->kern_name, kstrdup(res->kern_name, GFP_KERNEL | __GFP_NOFAIL));
}

void ipoib_rs_work_init(struct work_struct *work, work_func_t func)
{
	INIT_WORK(work, func);
}

/*
 * Joins the group on the port's netdev, so that its IP stack lets the group's RoCE packets
 * through; attaching a queue pair only programs the MAC filter.
 *
 * Returns the netdev's IPv6 side, which has the membership, with a reference for
 * ipoib_rs_ib_ip_leave(), or an ERR_PTR(). An MTU below 1280 ends that and all of its memberships;
 * a larger one makes another.
 */
struct inet6_dev *ipoib_rs_ib_ip_join(struct ib_device *device, u32 port,
				      const union ib_gid *mgid)
{
	struct net_device *ndev = ipoib_rs_ib_netdev(device, port);
	struct inet6_dev *idev;
	int err;

	if (!ndev)
		return ERR_PTR(-ENODEV);

	/* Taken first: if another one gets the membership, this one is seen not to stand. */
	idev = in6_dev_get(ndev);
	err = idev ? ipv6_dev_mc_inc(ndev, (const struct in6_addr *)mgid->raw) : -EINVAL;
	dev_put(ndev);
	if (!err)
		return idev;

	if (idev)
		in6_dev_put(idev);
	/* -EINVAL would say nothing: it means that IPv6 is off on the netdev. */
	return ERR_PTR(err == -EINVAL ? -EAFNOSUPPORT : err);
}

/* Whether @idev is still what its netdev's IPv6 works with. */
bool ipoib_rs_ip_stands(const struct inet6_dev *idev)
{
	return rcu_access_pointer(idev->dev->ip6_ptr) == idev;
}

/*
 * Leaves the group, and gives the reference back. If the IPv6 side is not the netdev's any more,
 * its memberships went with it, and those of its successor are somebody else's. One cannot end and
 * the next one have members between the two steps unless the MTU is changed twice meanwhile.
 */
void ipoib_rs_ib_ip_leave(struct inet6_dev *idev, const union ib_gid *mgid)
{
	if (ipoib_rs_ip_stands(idev))
		ipv6_dev_mc_dec(idev->dev, (const struct in6_addr *)mgid->raw);
	in6_dev_put(idev);
}

/* How many have joined the group on the port's netdev. */
unsigned int ipoib_rs_ib_ip_members(struct ib_device *device, u32 port, const union ib_gid *mgid)
{
	struct net_device *ndev = ipoib_rs_ib_netdev(device, port);
	const struct ifmcaddr6 *mc = NULL;
	unsigned int members = 0;
	struct inet6_dev *idev;

	if (!ndev)
		return 0;

	rcu_read_lock();
	idev = __in6_dev_get(ndev);
	if (idev)
		mc = rcu_dereference(idev->mc_list);
	while (mc && !ipv6_addr_equal(&mc->mca_addr, (const struct in6_addr *)mgid->raw))
		mc = rcu_dereference(mc->next);
	if (mc)
		members = READ_ONCE(mc->mca_users);
	rcu_read_unlock();
	dev_put(ndev);
	return members;
}

/* Lends the CPU what stays mapped, or gives it back to the device. */
void ipoib_rs_ib_sync_rx(struct ib_device *device, u64 addr, size_t len, bool for_cpu)
{
#if IS_BUILTIN(CONFIG_KUNIT)
	KUNIT_STATIC_STUB_REDIRECT(ipoib_rs_ib_sync_rx, device, addr, len, for_cpu);
#endif
	if (for_cpu)
		ib_dma_sync_single_for_cpu(device, addr, len, DMA_FROM_DEVICE);
	else
		ib_dma_sync_single_for_device(device, addr, len, DMA_FROM_DEVICE);
}

/* Maps a part of a frame, for a device that needs that. */
static u64 map_part(struct ib_device *device, struct page *page, size_t offset, size_t len)
{
#if IS_BUILTIN(CONFIG_KUNIT)
	KUNIT_STATIC_STUB_REDIRECT(map_part, device, page, offset, len);
#endif
	return ib_dma_map_page(device, page, offset, len, DMA_TO_DEVICE);
}

static void unmap_part(struct ib_device *device, u64 addr, size_t len)
{
#if IS_BUILTIN(CONFIG_KUNIT)
	KUNIT_STATIC_STUB_REDIRECT(unmap_part, device, addr, len);
#endif
	ib_dma_unmap_page(device, addr, len, DMA_TO_DEVICE);
}

/* Kept apart, so that what needs no mapping saves no registers for this. */
static noinline int map_skb_dma(struct ib_device *device, struct sk_buff *skb, struct ib_sge *sge)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	unsigned int head = skb_headlen(skb);
	int n = 0, i;

	if (head) {
		sge[n].addr = map_part(device, virt_to_page(skb->data), offset_in_page(skb->data),
				       head);
		if (unlikely(ib_dma_mapping_error(device, sge[n].addr)))
			return -EIO;
		sge[n++].length = head;
	}

	for (i = 0; i < info->nr_frags; i++) {
		const skb_frag_t *frag = &info->frags[i];
		unsigned int len = skb_frag_size(frag);
		struct page *page = skb_frag_page(frag);

		/* Memory that the CPU cannot reach. */
		if (unlikely(!page))
			goto unmap;
		sge[n].addr = map_part(device, page, skb_frag_off(frag), len);
		if (unlikely(ib_dma_mapping_error(device, sge[n].addr)))
			goto unmap;
		sge[n++].length = len;
	}
	return n;

unmap:
	while (n-- > 0)
		unmap_part(device, sge[n].addr, sge[n].length);
	return -EIO;
}

/*
 * Fills address and length of one element for the head, if there is one, and of one for each
 * fragment. Returns how many, or an error with nothing mapped: -EMSGSIZE if that would be more
 * than @max or the frame has parts that are no fragments.
 */
int ipoib_rs_ib_map_skb(struct ib_device *device, struct sk_buff *skb, struct ib_sge *sge,
			unsigned int max)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	unsigned int head = skb_headlen(skb), left = info->nr_frags, n = left;
	const skb_frag_t *frag;

	/* The compiler would keep both of its terms, in registers that have to be saved. */
	OPTIMIZER_HIDE_VAR(head);
	if (unlikely(info->frag_list) || (unlikely(left >= max) && (head || left > max)))
		return -EMSGSIZE;
	if (!ib_uses_virt_dma(device))
		return map_skb_dma(device, skb, sge);

	/* As map_skb_dma(), for devices that use kernel addresses: this cannot fail. */
	if (head) {
		sge->addr = (uintptr_t)skb->data;
		sge->length = head;
		sge++;
		n++;
	}
	for (frag = info->frags; left; left--, frag++, sge++) {
		netmem_ref netmem = skb_frag_netmem(frag);

		/* Memory that the CPU cannot reach. */
		if (unlikely(netmem_is_net_iov(netmem)))
			return -EIO;
		sge->addr = (uintptr_t)page_address(__netmem_to_page(netmem)) + skb_frag_off(frag);
		sge->length = skb_frag_size(frag);
	}
	return n;
}

/* Undoes ipoib_rs_ib_map_skb(), whose elements' addresses are @addr. */
void ipoib_rs_ib_unmap_skb(struct ib_device *device, struct sk_buff *skb, const u64 *addr)
{
	const struct skb_shared_info *info = skb_shinfo(skb);
	unsigned int head = skb_headlen(skb);
	int i;

	if (head)
		unmap_part(device, *addr++, head);
	for (i = 0; i < info->nr_frags; i++)
		unmap_part(device, *addr++, skb_frag_size(&info->frags[i]));
}

#if IS_BUILTIN(CONFIG_KUNIT)
/* Has @stub called instead of ipoib_rs_ib_sync_rx() until the running test ends. */
void ipoib_rs_stub_sync_rx(void (*stub)(struct ib_device *device, u64 addr, size_t len,
					bool for_cpu))
{
	kunit_activate_static_stub(kunit_get_current_test(), ipoib_rs_ib_sync_rx, *stub);
}

/* Has @map and @unmap called for the parts of frames until the running test ends. */
void ipoib_rs_stub_parts(u64 (*map)(struct ib_device *device, struct page *page, size_t offset,
				    size_t len),
			 void (*unmap)(struct ib_device *device, u64 addr, size_t len))
{
	kunit_activate_static_stub(kunit_get_current_test(), map_part, *map);
	kunit_activate_static_stub(kunit_get_current_test(), unmap_part, *unmap);
}
#endif
