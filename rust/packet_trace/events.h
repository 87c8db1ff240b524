/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of ib_hwsim.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ib_hwsim

#if !defined(PACKET_TRACE_EVENTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define PACKET_TRACE_EVENTS_H

#include <linux/tracepoint.h>

#include "helpers.h"

TRACE_DEFINE_ENUM(PACKET_TRACE_SMP);
TRACE_DEFINE_ENUM(PACKET_TRACE_UD);
TRACE_DEFINE_ENUM(PACKET_TRACE_RC);

#define packet_trace_kind_name(kind)			\
	__print_symbolic(kind,				\
			 { PACKET_TRACE_SMP, "smp" },	\
			 { PACKET_TRACE_UD, "ud" },	\
			 { PACKET_TRACE_RC, "rc" })

DECLARE_EVENT_CLASS(ib_hwsim_packet,
	TP_PROTO(const struct packet_trace *packet),
	TP_ARGS(packet),
	TP_STRUCT__entry(
		__string(node, packet->node)
		__field(u8, port)
		__field(u8, kind)
		__field(u8, sl)
		__field(u8, opcode)
		__field(u16, slid)
		__field(u16, dlid)
		__field(u32, src_qp)
		__field(u32, dest_qp)
		__field(u32, psn)
		__field(u32, packets)
		__field(u32, length)
	),
	TP_fast_assign(
		__assign_str(node);
		__entry->port = packet->port;
		__entry->kind = packet->kind;
		__entry->sl = packet->sl;
		__entry->opcode = packet->opcode;
		__entry->slid = packet->slid;
		__entry->dlid = packet->dlid;
		__entry->src_qp = packet->src_qp;
		__entry->dest_qp = packet->dest_qp;
		__entry->psn = packet->psn;
		__entry->packets = packet->packets;
		__entry->length = packet->length;
	),
	TP_printk("node=%s port=%u kind=%s slid=0x%x dlid=0x%x sl=%u opcode=0x%02x src_qp=0x%x dest_qp=0x%x psn=%u packets=%u length=%u",
		  __get_str(node), __entry->port, packet_trace_kind_name(__entry->kind),
		  __entry->slid, __entry->dlid, __entry->sl, __entry->opcode,
		  __entry->src_qp, __entry->dest_qp, __entry->psn, __entry->packets,
		  __entry->length)
);

DEFINE_EVENT(ib_hwsim_packet, packet_tx,
	TP_PROTO(const struct packet_trace *packet),
	TP_ARGS(packet)
);

DEFINE_EVENT(ib_hwsim_packet, packet_rx,
	TP_PROTO(const struct packet_trace *packet),
	TP_ARGS(packet)
);

TRACE_EVENT(packet_drop,
	TP_PROTO(const struct packet_trace *packet),
	TP_ARGS(packet),
	TP_STRUCT__entry(
		__string(node, packet->node)
		__string(reason, packet->reason)
		__field(u8, port)
		__field(u8, kind)
		__field(u8, sl)
		__field(u8, opcode)
		__field(u16, slid)
		__field(u16, dlid)
		__field(u32, src_qp)
		__field(u32, dest_qp)
		__field(u32, psn)
		__field(u32, packets)
		__field(u32, length)
	),
	TP_fast_assign(
		__assign_str(node);
		__assign_str(reason);
		__entry->port = packet->port;
		__entry->kind = packet->kind;
		__entry->sl = packet->sl;
		__entry->opcode = packet->opcode;
		__entry->slid = packet->slid;
		__entry->dlid = packet->dlid;
		__entry->src_qp = packet->src_qp;
		__entry->dest_qp = packet->dest_qp;
		__entry->psn = packet->psn;
		__entry->packets = packet->packets;
		__entry->length = packet->length;
	),
	TP_printk("node=%s port=%u kind=%s slid=0x%x dlid=0x%x sl=%u opcode=0x%02x src_qp=0x%x dest_qp=0x%x psn=%u packets=%u length=%u reason=%s",
		  __get_str(node), __entry->port, packet_trace_kind_name(__entry->kind),
		  __entry->slid, __entry->dlid, __entry->sl, __entry->opcode,
		  __entry->src_qp, __entry->dest_qp, __entry->psn, __entry->packets,
		  __entry->length, __get_str(reason))
);

#endif

/* This part must be outside protection. The directory is given with -I. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE events
#include <trace/define_trace.h>
