/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros that the socket buffer and page pool abstractions call.
 */
#ifndef IPOIB_RS_HELPERS_SKB_H
#define IPOIB_RS_HELPERS_SKB_H

#include <linux/skbuff.h>
#include <net/page_pool/types.h>

/* Octets that the stack sees in front of the frame: an address, then the wire's header. */
#define IPOIB_RS_PSEUDO_LEN	20
#define IPOIB_RS_ENCAP_LEN	4

/*
 * A buffer of several parts: a head, which becomes an skb's, and bodies, which become its page
 * fragments. The head's data take HEAD_LEN octets behind HEAD_ROOM. See rust/netdev/parts.rs for
 * why.
 */
#define IPOIB_RS_HEAD_ROOM	124
#define IPOIB_RS_HEAD_LEN	580
#define IPOIB_RS_MAX_BODIES	2

struct ipoib_rs_parts {
	void *va[1 + IPOIB_RS_MAX_BODIES];	/* The head, then the bodies that there are. */
	u32 len;				/* Octets that were received. */
	u32 body_len;				/* Octets that a body takes. */
};

/* What the stack has to know about the packet in such a buffer. */
struct ipoib_rs_packet {
	u32 gso_type;
	u16 gso_size;				/* 0: it is not to be segmented. */
	u16 gso_segs;
	u16 strip;				/* Octets in front of it. */
	__be16 protocol;
	u16 csum_start;				/* From the packet's first octet. */
	u16 csum_offset;
	u32 ip_summed;				/* As long as that leaves no gap. */
};

/* Transmit. */
int ipoib_rs_skb_linearize(struct sk_buff *skb);
int ipoib_rs_skb_cow_head(struct sk_buff *skb, unsigned int headroom);
void ipoib_rs_skb_receive(struct sk_buff *skb, struct net_device *dev);
bool ipoib_rs_skb_may_pull(struct sk_buff *skb, unsigned int len);
u32 ipoib_rs_skb_hash(struct sk_buff *skb);
int ipoib_rs_skb_segment(struct sk_buff *skb, bool scatter, bool checksum,
			 struct sk_buff **segments);
struct sk_buff *ipoib_rs_skb_copy_part(const struct sk_buff *skb, unsigned int link,
				       const void *header, unsigned int header_len,
				       unsigned int offset, unsigned int len);
struct sk_buff *ipoib_rs_skb_new(const void *data, unsigned int len);
void ipoib_rs_skb_update_mtu(struct sk_buff *skb, u32 mtu);
void ipoib_rs_skb_too_big(struct sk_buff *skb, struct net_device *dev, u32 mtu);

/* Receive: called once a frame. */
struct sk_buff *ipoib_rs_rx_copy(struct napi_struct *napi, const void *header,
				 unsigned int len, __be16 protocol, bool csum_ok);
struct sk_buff *ipoib_rs_rx_frame(void *va, unsigned int room, unsigned int offset,
				  unsigned int len, __be16 protocol, bool csum_ok);
struct sk_buff *ipoib_rs_rx_parts(const struct ipoib_rs_parts *parts,
				  const struct ipoib_rs_packet *packet);
void ipoib_rs_skb_set_packet_type(struct sk_buff *skb, u8 packet_type);

/* Page pool. */
unsigned int ipoib_rs_page_pool_buf_size(unsigned int headroom, unsigned int len);
struct page_pool *ipoib_rs_page_pool_create(unsigned int order, unsigned int pages);
void *ipoib_rs_page_pool_alloc(struct page_pool *pool, unsigned int size);
void *ipoib_rs_page_pool_alloc_sleeping(struct page_pool *pool, unsigned int size);
void ipoib_rs_page_pool_put(void *va);
bool ipoib_rs_parts_alloc(struct page_pool *heads, unsigned int size, struct page_pool *bodies,
			  unsigned int n, bool sleep, void **va);

#endif
