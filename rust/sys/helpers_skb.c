// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros that the socket buffer and page pool abstractions call.
 */

#include "helpers_skb.h"

#include <linux/netdevice.h>
#include <net/page_pool/helpers.h>

int ipoib_rs_skb_linearize(struct sk_buff *skb)
{
	return skb_linearize(skb);
}

int ipoib_rs_skb_cow_head(struct sk_buff *skb, unsigned int headroom)
{
	return skb_cow_head(skb, headroom);
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

/*
 * An skb around a page pool fragment with @room in front of its skb_shared_info, whose data are
 * @len octets from @offset.
 */
struct sk_buff *ipoib_rs_rx_build(void *va, unsigned int room, unsigned int offset,
				  unsigned int len)
{
	struct sk_buff *skb = napi_build_skb(va, SKB_HEAD_ALIGN(room));

	if (unlikely(!skb))
		return NULL;

	skb_mark_for_recycle(skb);
	skb_reserve(skb, offset);
	__skb_put(skb, len);
	return skb;
}

/*
 * The stack's link-layer header is an address and the wire's header, of which only the latter
 * crosses the wire: put a zeroed address in front of it. The wire header's reserved field is
 * zeroed too, since GRO merges frames only when their link-layer headers are equal.
 */
void ipoib_rs_rx_pseudo_header(struct sk_buff *skb)
{
	u8 *header = __skb_push(skb, IPOIB_RS_PSEUDO_LEN);

	memset(header, 0, IPOIB_RS_PSEUDO_LEN);
	memset(header + IPOIB_RS_PSEUDO_LEN + 2, 0, 2);
	skb_reset_mac_header(skb);
	__skb_pull(skb, IPOIB_RS_PSEUDO_LEN + IPOIB_RS_ENCAP_LEN);
}

/*
 * ipoib_rs_rx_build() and ipoib_rs_rx_pseudo_header() at once, for every frame: @offset is the wire
 * header's, @len counts it.
 */
struct sk_buff *ipoib_rs_rx_frame(void *va, unsigned int room, unsigned int offset,
				  unsigned int len, __be16 protocol, bool csum_ok)
{
	struct sk_buff *skb = napi_build_skb(va, SKB_HEAD_ALIGN(room));
	u8 *header = va + offset;

	if (unlikely(!skb))
		return NULL;

	memset(header - IPOIB_RS_PSEUDO_LEN, 0, IPOIB_RS_PSEUDO_LEN);
	memset(header + 2, 0, 2);
	skb->data = header + IPOIB_RS_ENCAP_LEN;
	skb->tail += offset + len;
	skb->len = len - IPOIB_RS_ENCAP_LEN;
	skb->mac_header = offset - IPOIB_RS_PSEUDO_LEN;
	skb->protocol = protocol;
	skb_mark_for_recycle(skb);
	if (csum_ok)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	return skb;
}

void ipoib_rs_skb_set_packet_type(struct sk_buff *skb, u8 packet_type)
{
	skb->pkt_type = packet_type;
}

void ipoib_rs_skb_csum_unnecessary(struct sk_buff *skb)
{
	skb->ip_summed = CHECKSUM_UNNECESSARY;
}

/* What a fragment for @len octets behind @headroom takes, skb_shared_info included. */
unsigned int ipoib_rs_page_pool_buf_size(unsigned int headroom, unsigned int len)
{
	return SKB_HEAD_ALIGN(headroom + len);
}

struct page_pool *ipoib_rs_page_pool_create(unsigned int order, unsigned int pages)
{
	struct page_pool_params params = {
		.order		= order,
		.pool_size	= pages,
		.nid		= NUMA_NO_NODE,
		.dma_dir	= DMA_FROM_DEVICE,
	};

	return page_pool_create(&params);
}

void *ipoib_rs_page_pool_alloc(struct page_pool *pool, unsigned int size, bool sleep)
{
	gfp_t gfp = (sleep ? GFP_KERNEL : GFP_ATOMIC) | __GFP_NOWARN;
	unsigned int offset;
	struct page *page = page_pool_alloc_frag(pool, &offset, size, gfp);

	return likely(page) ? page_address(page) + offset : NULL;
}

/* Gives one fragment back, from any context. */
void ipoib_rs_page_pool_put(void *va)
{
	struct page *page = virt_to_head_page(va);

	page_pool_put_full_page(pp_page_to_nmdesc(page)->pp, page, false);
}

/* The same, in an skb of its own: @header is the wire header, @len counts it. */
struct sk_buff *ipoib_rs_rx_copy(struct napi_struct *napi, const void *header,
				 unsigned int len, __be16 protocol, bool csum_ok)
{
	struct sk_buff *skb = napi_alloc_skb(napi, len);

	if (unlikely(!skb))
		return NULL;

	skb_put_data(skb, header, len);
	ipoib_rs_rx_pseudo_header(skb);
	skb->protocol = protocol;
	if (csum_ok)
		skb->ip_summed = CHECKSUM_UNNECESSARY;
	return skb;
}
