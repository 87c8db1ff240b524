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

/* Transmit. */
int ipoib_rs_skb_linearize(struct sk_buff *skb);
int ipoib_rs_skb_cow_head(struct sk_buff *skb, unsigned int headroom);
void ipoib_rs_skb_receive(struct sk_buff *skb, struct net_device *dev);
bool ipoib_rs_skb_may_pull(struct sk_buff *skb, unsigned int len);

/* Receive: called once a frame. */
struct sk_buff *ipoib_rs_rx_build(void *va, unsigned int room, unsigned int offset,
				  unsigned int len);
void ipoib_rs_rx_pseudo_header(struct sk_buff *skb);
struct sk_buff *ipoib_rs_rx_copy(struct napi_struct *napi, const void *header,
				 unsigned int len, __be16 protocol, bool csum_ok);
struct sk_buff *ipoib_rs_rx_frame(void *va, unsigned int room, unsigned int offset,
				  unsigned int len, __be16 protocol, bool csum_ok);
void ipoib_rs_skb_set_packet_type(struct sk_buff *skb, u8 packet_type);
void ipoib_rs_skb_csum_unnecessary(struct sk_buff *skb);

/* Page pool. */
unsigned int ipoib_rs_page_pool_buf_size(unsigned int headroom, unsigned int len);
struct page_pool *ipoib_rs_page_pool_create(unsigned int order, unsigned int pages);
void *ipoib_rs_page_pool_alloc(struct page_pool *pool, unsigned int size, bool sleep);
void ipoib_rs_page_pool_put(void *va);

#endif
