/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arguments of the tracepoints of ib_hwsim, from the packet_trace crate.
 */
#ifndef PACKET_TRACE_HELPERS_H
#define PACKET_TRACE_HELPERS_H

#include <linux/types.h>

/* A packet at a port, or a run of packets. All in host byte order. */
struct packet_trace {
	const char *node;
	const char *reason;
	u32 length;
	u32 packets;
	u32 psn;
	u32 src_qp;
	u32 dest_qp;
	u16 slid;
	u16 dlid;
	u8 port;
	u8 kind;
	u8 sl;
	u8 opcode;
};

enum packet_trace_kind {
	PACKET_TRACE_SMP,
	PACKET_TRACE_UD,
	PACKET_TRACE_RC,
};

void packet_trace_tx(const struct packet_trace *packet);
void packet_trace_rx(const struct packet_trace *packet);
void packet_trace_drop(const struct packet_trace *packet);

#endif
