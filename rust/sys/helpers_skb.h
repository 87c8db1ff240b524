/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros that the socket buffer and page pool abstractions call.
 */
#ifndef IPOIB_RS_HELPERS_SKB_H
#define IPOIB_RS_HELPERS_SKB_H

#include <linux/skbuff.h>
#include <net/page_pool/types.h>

/* Room in front of a packet for its link-layer header. */
#define IPOIB_RS_LINK_ROOM	64

/*
 * A buffer of several parts: a head, which becomes an skb's, and bodies, which become its page
 * fragments. The head's data take HEAD_LEN bytes behind HEAD_ROOM. See rust/netdev/parts.rs for
 * why.
 */
#define IPOIB_RS_HEAD_ROOM	124
#define IPOIB_RS_HEAD_LEN	580
#define IPOIB_RS_MAX_BODIES	3

struct ipoib_rs_parts {
	void *va[1 + IPOIB_RS_MAX_BODIES];	/* The head, then the bodies that there are. */
	struct page *pages[IPOIB_RS_MAX_BODIES];	/* Where the bodies are; head pages. */
};

/* Pages of a pool that are cut into fragments of @size bytes, @per_page of each. */
struct ipoib_rs_frags {
	struct page_pool *pool;
	void *next;				/* Of the page that is being cut. */
	void *end;				/* Of that: when next is there, nothing is left. */
	u32 size;
	u32 per_page;
};

/* Where parts come from, by body. Those that a buffer does not have are of no length. */
struct ipoib_rs_parts_pools {
	struct ipoib_rs_frags heads;
	struct page_pool *copies;
	struct page_pool *bodies[IPOIB_RS_MAX_BODIES];
	u32 body_len[IPOIB_RS_MAX_BODIES];
	/* The end of a message is copied if it has up to so many bytes. */
	u32 copied[IPOIB_RS_MAX_BODIES];
};

/*
 * Two words describe the packet in such a buffer to the stack; each field is named by how far the
 * word has to be shifted to the right. The first: bytes in front of the packet; its protocol,
 * big-endian; where its checksum begins, from its first byte, or 0 if there is none to be computed;
 * where that is stored, from there. The second: how to segment it, or 0.
 */
#define IPOIB_RS_LINK_STRIP		0
#define IPOIB_RS_LINK_PROTOCOL		16
#define IPOIB_RS_LINK_CSUM_START	32
#define IPOIB_RS_LINK_CSUM_OFFSET	48
#define IPOIB_RS_GSO_SIZE		0
#define IPOIB_RS_GSO_SEGS		16
#define IPOIB_RS_GSO_TYPE		32

/* Receive. */
void ipoib_rs_rx_alone(struct napi_struct *napi, struct sk_buff *skb);

/* Transmit. */
int ipoib_rs_skb_linearize(struct sk_buff *skb);
void ipoib_rs_skb_abandon(struct sk_buff *skb);
int ipoib_rs_skb_cow(struct sk_buff *skb, unsigned int headroom);
void ipoib_rs_skb_loop_back(struct sk_buff *skb, struct net_device *dev);
void ipoib_rs_skb_receive(struct sk_buff *skb, struct net_device *dev);
bool ipoib_rs_skb_may_pull(struct sk_buff *skb, unsigned int len);
u32 ipoib_rs_skb_hash(struct sk_buff *skb);
int ipoib_rs_skb_segment(struct sk_buff *skb, unsigned int link, bool scatter, bool checksum,
			 struct sk_buff **segments);
struct sk_buff *ipoib_rs_skb_copy_part(const struct sk_buff *skb, unsigned int link,
				       const void *header, unsigned int header_len,
				       unsigned int offset, unsigned int len);
struct sk_buff *ipoib_rs_skb_new(const void *data, unsigned int len);
void ipoib_rs_skb_update_mtu(struct sk_buff *skb, u32 mtu);
void ipoib_rs_skb_too_big(struct sk_buff *skb, struct net_device *dev, u32 mtu);

/* Receive: called once a frame. */
struct sk_buff *ipoib_rs_rx_copy(struct napi_struct *napi, const void *packet,
				 unsigned int len);
bool ipoib_rs_rx_rest(struct ipoib_rs_parts_pools *pools, struct ipoib_rs_parts *parts,
		      struct sk_buff *skb, unsigned int len, u64 gso);

/* Page pool. */
unsigned int ipoib_rs_page_pool_buf_size(unsigned int headroom, unsigned int len);
struct page_pool *ipoib_rs_page_pool_create(unsigned int order, unsigned int pages,
					    struct device *dma);
void ipoib_rs_page_pool_keep_mapped(struct page_pool *pool);
u64 ipoib_rs_page_pool_dma(void *va);
void *ipoib_rs_frags_begin(struct ipoib_rs_frags *frags, bool sleep);
void ipoib_rs_frags_drain(struct ipoib_rs_frags *frags);
void ipoib_rs_page_pool_put(void *va);
bool ipoib_rs_parts_alloc(struct ipoib_rs_parts_pools *pools, unsigned int n,
			  struct ipoib_rs_parts *parts);

#if IS_BUILTIN(CONFIG_KUNIT)
void ipoib_rs_bh_disable(void);
void ipoib_rs_bh_enable(void);
int ipoib_rs_dma_move(struct device *dev);
void *ipoib_rs_dma_find(struct device *dev, u64 addr);
void ipoib_rs_page_hold(void *va);
void ipoib_rs_page_release(void *va);
void ipoib_rs_watch_free(struct sk_buff *skb);
unsigned int ipoib_rs_freed(void);
#endif

#endif
