// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros that the socket buffer and page pool abstractions call.
 */

#include "helpers_skb.h"

#include <linux/dma-direct.h>
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <net/busy_poll.h>
#include <net/dst_metadata.h>
#include <net/gso.h>
#include <net/icmp.h>
#include <net/page_pool/helpers.h>

int ipoib_rs_skb_linearize(struct sk_buff *skb)
{
	return skb_linearize(skb);
}

/* The frame stays for ever. Whatever its sender, its route or a filter waits for does not. */
void ipoib_rs_skb_abandon(struct sk_buff *skb)
{
	skb_zcopy_clear(skb, false);
	skb_orphan(skb);
	skb_dst_drop(skb);
	nf_reset_ct(skb);
	skb_ext_reset(skb);
}

int ipoib_rs_skb_cow(struct sk_buff *skb, unsigned int headroom)
{
	return skb_cow(skb, headroom);
}

/* Has @dev, which was to send the packet in @skb, receive it. */
void ipoib_rs_skb_loop_back(struct sk_buff *skb, struct net_device *dev)
{
	skb_scrub_packet(skb, false);
	skb_orphan(skb);
	skb->dev = dev;
	skb->pkt_type = PACKET_HOST;
	skb_reset_mac_header(skb);
	skb_reset_network_header(skb);
	netif_rx(skb);
}

void ipoib_rs_skb_receive(struct sk_buff *skb, struct net_device *dev)
{
	skb->dev = dev;
	local_bh_disable();
	netif_receive_skb(skb);
	local_bh_enable();
}

bool ipoib_rs_skb_may_pull(struct sk_buff *skb, unsigned int len)
{
	return pskb_may_pull(skb, len);
}

u32 ipoib_rs_skb_hash(struct sk_buff *skb)
{
	return skb_get_hash(skb);
}

/*
 * Segments a frame of IP that begins with a link-layer header of @link bytes, as each of the
 * segments then does. They are linked by their next, and @skb stays the caller's.
 */
int ipoib_rs_skb_segment(struct sk_buff *skb, unsigned int link, bool scatter, bool checksum,
			 struct sk_buff **segments)
{
	netdev_features_t features = 0;
	struct sk_buff *first;

	if (skb->protocol != htons(ETH_P_IP) && skb->protocol != htons(ETH_P_IPV6))
		return -EPROTONOSUPPORT;
	/* What the core takes off the front before it calls the protocol. */
	if (skb_network_offset(skb) != link || skb_headlen(skb) < link)
		return -EINVAL;

	if (scatter)
		features |= NETIF_F_SG;
	if (checksum)
		features |= NETIF_F_HW_CSUM;
	first = skb_gso_segment(skb, features);
	if (IS_ERR(first))
		return PTR_ERR(first);
	if (!first)
		return -EINVAL;

	*segments = first;
	return 0;
}

/*
 * A frame with the first @link bytes of @skb, then @header, then the @len bytes of @skb that are
 * @offset behind the first @link, for the caller to have checked.
 */
struct sk_buff *ipoib_rs_skb_copy_part(const struct sk_buff *skb, unsigned int link,
				       const void *header, unsigned int header_len,
				       unsigned int offset, unsigned int len)
{
	unsigned int room = NET_SKB_PAD + IPOIB_RS_LINK_ROOM;
	struct sk_buff *copy = alloc_skb(room + link + header_len + len,
					 GFP_ATOMIC | __GFP_NOWARN);

	if (!copy)
		return NULL;

	skb_reserve(copy, room);
	skb_put_data(copy, skb->data, link);
	skb_reset_mac_header(copy);
	skb_set_network_header(copy, link);
	skb_put_data(copy, header, header_len);
	if (skb_copy_bits(skb, link + offset, skb_put(copy, len), len)) {
		kfree_skb(copy);
		return NULL;
	}
	copy->dev = skb->dev;
	copy->protocol = skb->protocol;
	copy->priority = skb->priority;
	copy->mark = skb->mark;
	skb_copy_hash(copy, skb);
	return copy;
}

/* A frame of @len bytes. */
struct sk_buff *ipoib_rs_skb_new(const void *data, unsigned int len)
{
	unsigned int room = NET_SKB_PAD + IPOIB_RS_LINK_ROOM;
	struct sk_buff *skb = alloc_skb(room + len, GFP_ATOMIC | __GFP_NOWARN);

	if (!skb)
		return NULL;

	skb_reserve(skb, room);
	skb_put_data(skb, data, len);
	return skb;
}

/* Whether the @len bytes of the network header are in @skb's head, behind its data. */
static bool has_network_header(const struct sk_buff *skb, int len)
{
	int offset = skb_network_offset(skb);

	return offset >= 0 && offset + len <= (int)skb_headlen(skb);
}

/* Whether @skb has, and keeps, a route of @family: none of a tunnel's, nor one borrowed. */
static bool has_route(const struct sk_buff *skb, unsigned short family)
{
	return !(skb->_skb_refdst & SKB_DST_NOREF) && skb_valid_dst(skb) &&
	       skb_dst(skb)->ops->family == family;
}

void ipoib_rs_skb_update_mtu(struct sk_buff *skb, u32 mtu)
{
	bool usable;

	if (skb->protocol == htons(ETH_P_IP))
		usable = has_route(skb, AF_INET) &&
			 has_network_header(skb, sizeof(struct iphdr));
	else if (skb->protocol == htons(ETH_P_IPV6))
		usable = has_route(skb, AF_INET6) &&
			 has_network_header(skb, sizeof(struct ipv6hdr));
	else
		usable = false;
	if (usable)
		skb_dst_update_pmtu_no_confirm(skb, mtu);
}

/* Tells the sender of @skb, which is given up, that packets above @mtu do not get through. */
void ipoib_rs_skb_too_big(struct sk_buff *skb, struct net_device *dev, u32 mtu)
{
	skb->dev = dev;
	memset(skb->cb, 0, sizeof(skb->cb));
	if (skb->protocol == htons(ETH_P_IP)) {
		if (has_route(skb, AF_INET) && has_network_header(skb, sizeof(struct iphdr)))
			icmp_ndo_send(skb, ICMP_DEST_UNREACH, ICMP_FRAG_NEEDED, htonl(mtu));
	} else if (ipv6_mod_enabled() && skb->protocol == htons(ETH_P_IPV6)) {
		if (!has_route(skb, AF_INET6))
			skb_dst_drop(skb);
		if (has_network_header(skb, sizeof(struct ipv6hdr)))
			icmpv6_ndo_send(skb, ICMPV6_PKT_TOOBIG, 0, mtu);
	}
	kfree_skb_reason(skb, SKB_DROP_REASON_PKT_TOO_BIG);
}

static __always_inline void rx_body(struct sk_buff *skb, unsigned int n, struct page *page,
				    unsigned int offset, unsigned int len, unsigned int size)
{
	struct skb_shared_info *info = skb_shinfo(skb);

	skb_frag_fill_page_desc(&info->frags[n], page, offset, len);
	info->nr_frags = n + 1;
	skb_propagate_pfmemalloc(page, skb);
	skb->len += len;
	skb->data_len += len;
	skb->truesize += size;
}

/*
 * Passes up a frame that came alone. GRO would look for others to merge it with, and pass it up at
 * the end of the poll. But what it holds, or is about to pass up, comes first; and who sets
 * gro_flush_timeout wants frames to wait for later ones.
 */
void ipoib_rs_rx_alone(struct napi_struct *napi, struct sk_buff *skb)
{
	if (napi->gro.bitmask || napi->gro.rx_count || READ_ONCE(napi->gro_flush_timeout)) {
		gro_receive_skb(&napi->gro, skb);
		return;
	}
	skb_mark_napi_id(skb, napi);
	netif_receive_skb(skb);
}

/* Size of a fragment for @len bytes behind @headroom, skb_shared_info included. */
unsigned int ipoib_rs_page_pool_buf_size(unsigned int headroom, unsigned int len)
{
	return ALIGN(SKB_HEAD_ALIGN(headroom + len), dma_get_cache_alignment());
}

/* The pages are mapped for @dma, and synced for it when they return, unless it is NULL. */
struct page_pool *ipoib_rs_page_pool_create(unsigned int order, unsigned int pages,
					    struct device *dma)
{
	struct page_pool_params params = {
		.flags		= dma ? PP_FLAG_DMA_MAP | PP_FLAG_DMA_SYNC_DEV : 0,
		.order		= order,
		.pool_size	= pages,
		.nid		= NUMA_NO_NODE,
		.dev		= dma,
		.dma_dir	= DMA_FROM_DEVICE,
		.max_len	= PAGE_SIZE << order,
	};

	return page_pool_create(&params);
}

/*
 * The device may still write to pages that never return. Unmapping them, as page_pool_destroy()
 * does, would give their addresses to others. Nor is the device touched when the others return:
 * it may be gone by then.
 */
void ipoib_rs_page_pool_keep_mapped(struct page_pool *pool)
{
	pool->dma_sync = false;
	/*
	 * The pool unmaps the pages in its list only, be it as they return
	 * (__page_pool_unmap_netmem_dma()) or all at once (page_pool_scrub()). With the list
	 * empty, a page that returns still has its number there taken off, without which the
	 * kernel warns. Where pages have no room for a number, there is no list. That is how 7.3
	 * does it, and how the tests of this check that it still does.
	 */
	if (PP_DMA_INDEX_BITS)
		xa_destroy(&pool->dma_mapped);
	else
		pool->dma_map = false;
	synchronize_net();
}

/* The address of @va, in a page of a pool that maps, for the pool's device. */
u64 ipoib_rs_page_pool_dma(void *va)
{
	struct page *page = virt_to_head_page(va);

	return page_pool_get_dma_addr(page) + (va - page_address(page));
}

/* The first fragment of a new page, when nothing is left of the last one. */
void *ipoib_rs_frags_begin(struct ipoib_rs_frags *frags, bool sleep)
{
	gfp_t gfp = (sleep ? GFP_KERNEL : GFP_ATOMIC) | __GFP_NOWARN;
	struct page *page = page_pool_alloc_pages(frags->pool, gfp);
	void *va;

	if (unlikely(!page))
		return NULL;

	page_pool_fragment_page(page, frags->per_page);
	va = page_address(page);
	frags->next = va + frags->size;
	frags->end = va + frags->per_page * frags->size;
	return va;
}

/* Gives back what is left of a page. */
void ipoib_rs_frags_drain(struct ipoib_rs_frags *frags)
{
	u32 left = (frags->end - frags->next) / frags->size;
	struct page *page;

	if (!left)
		return;

	page = virt_to_head_page(frags->next);
	if (!page_pool_unref_page(page, left))
		page_pool_put_unrefed_page(frags->pool, page, -1, false);
	frags->next = frags->end;
}

/* Twin of the one in Rust (rust/netdev/page_pool.rs). */
static __always_inline void *take_frag(struct ipoib_rs_frags *frags, bool sleep)
{
	void *va;

	if (unlikely(frags->next == frags->end))
		return ipoib_rs_frags_begin(frags, sleep);

	va = frags->next;
	frags->next += frags->size;
	return va;
}

/* Gives one fragment back, from any context but hard interrupt. */
void ipoib_rs_page_pool_put(void *va)
{
	struct page *page = virt_to_head_page(va);

	page_pool_put_full_page(pp_page_to_nmdesc(page)->pp, page, false);
}

/* Fills @parts, which is empty, with a head and @n bodies, or leaves it so: false. May sleep. */
bool ipoib_rs_parts_alloc(struct ipoib_rs_parts_pools *pools, unsigned int n,
			  struct ipoib_rs_parts *parts)
{
	gfp_t gfp = GFP_KERNEL | __GFP_NOWARN;
	unsigned int i;

	parts->va[0] = take_frag(&pools->heads, true);
	if (unlikely(!parts->va[0]))
		return false;

	for (i = 0; i < n; i++) {
		struct page *page = page_pool_alloc_pages(pools->bodies[i], gfp);

		if (unlikely(!page))
			goto free;
		parts->pages[i] = page;
		parts->va[1 + i] = page_address(page);
	}
	return true;

free:
	for (i++; i-- > 0; ) {
		ipoib_rs_page_pool_put(parts->va[i]);
		parts->va[i] = NULL;
	}
	return false;
}

/* Adds a copy of @len bytes, in a fragment of its own, to @skb as fragment @n. */
static noinline bool rx_copy(struct sk_buff *skb, unsigned int n, struct page_pool *pool,
			     const void *data, unsigned int len)
{
	unsigned int size = L1_CACHE_ALIGN(len), offset;
	struct page *page = page_pool_alloc_frag(pool, &offset, size, GFP_ATOMIC | __GFP_NOWARN);

	if (unlikely(!page))
		return false;

	memcpy(page_address(page) + offset, data, len);
	rx_body(skb, n, page, offset, len, size);
	return true;
}

/*
 * Adds the rest of a message of @len bytes to @skb, which has its head: the segmentation fields,
 * and the data in the bodies of @parts, which are replaced. Returns false if there is no memory;
 * @skb has only the beginning then, and @parts is complete.
 *
 * The caller has verified the packet's fields. So the packet does not get SKB_GSO_DODGY, which
 * would have them verified again, keep GRO from merging the packet with its neighbours, and keep
 * most hardware from segmenting it.
 */
bool ipoib_rs_rx_rest(struct ipoib_rs_parts_pools *pools, struct ipoib_rs_parts *parts,
		      struct sk_buff *skb, unsigned int len, u64 gso)
{
	unsigned int rest = len - min(len, IPOIB_RS_HEAD_LEN), n;

	if (gso) {
		struct skb_shared_info *info = skb_shinfo(skb);

		info->gso_size = gso >> IPOIB_RS_GSO_SIZE;
		info->gso_segs = gso >> IPOIB_RS_GSO_SEGS;
		info->gso_type = gso >> IPOIB_RS_GSO_TYPE;
	}

	for (n = 0; rest; n++) {
		unsigned int part = min(rest, pools->body_len[n]);
		struct page *page;

		if (part == rest && len <= pools->copied[n]) {
			if (unlikely(!rx_copy(skb, n, pools->copies, parts->va[1 + n], rest)))
				return false;
			break;
		}

		page = page_pool_alloc_pages(pools->bodies[n], GFP_ATOMIC | __GFP_NOWARN);
		if (unlikely(!page))
			return false;
		rx_body(skb, n, parts->pages[n], 0, part, pools->body_len[n]);
		parts->pages[n] = page;
		parts->va[1 + n] = page_address(page);
		rest -= part;
	}
	return true;
}

/* An skb with a copy of a packet of @len bytes, and without a link-layer header. */
struct sk_buff *ipoib_rs_rx_copy(struct napi_struct *napi, const void *packet, unsigned int len)
{
	struct sk_buff *skb = napi_alloc_skb(napi, IPOIB_RS_LINK_ROOM + len);

	if (unlikely(!skb))
		return NULL;

	skb_reserve(skb, IPOIB_RS_LINK_ROOM);
	skb_put_data(skb, packet, len);
	return skb;
}

#if IS_BUILTIN(CONFIG_KUNIT)
/* Tests do in process context what is done in a NAPI poll otherwise. */
void ipoib_rs_bh_disable(void)
{
	local_bh_disable();
}

void ipoib_rs_bh_enable(void)
{
	local_bh_enable();
}

/* Has a device of a test's find memory elsewhere than the CPU does, virtually and physically. */
int ipoib_rs_dma_move(struct device *dev)
{
	struct bus_dma_region *map = kcalloc(2, sizeof(*map), GFP_KERNEL);

	if (!map)
		return -ENOMEM;

	map[0].dma_start = BIT_ULL(40);
	map[0].size = BIT_ULL(40);
	/* It is freed with the device. */
	dev->dma_range_map = map;
	return 0;
}

/* Where the CPU finds what such a device finds at @addr; NULL if there is nothing. */
void *ipoib_rs_dma_find(struct device *dev, u64 addr)
{
	phys_addr_t phys = dma_to_phys(dev, addr);

	if (phys == (phys_addr_t)-1 || !pfn_valid(PHYS_PFN(phys)))
		return NULL;

	return phys_to_virt(phys);
}

/* The page of @va stays, whoever gives it up: a test looks at it then. */
void ipoib_rs_page_hold(void *va)
{
	get_page(virt_to_head_page(va));
}

void ipoib_rs_page_release(void *va)
{
	put_page(virt_to_head_page(va));
}

static atomic_t freed = ATOMIC_INIT(0);

static void count_free(struct sk_buff *skb)
{
	atomic_inc(&freed);
}

/* Counts @skb when it is freed or orphaned. */
void ipoib_rs_watch_free(struct sk_buff *skb)
{
	skb_orphan(skb);
	skb->destructor = count_free;
}

/* How many of those were freed. */
unsigned int ipoib_rs_freed(void)
{
	return atomic_read(&freed);
}
#endif
