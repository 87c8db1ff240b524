/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints of ipoib_rs.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ipoib_rs

#if !defined(IPOIB_TRACE_EVENTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define IPOIB_TRACE_EVENTS_H

#include <linux/tracepoint.h>

#include "helpers.h"

TRACE_EVENT(drop,
	TP_PROTO(const struct ipoib_trace_text *interface, const struct ipoib_trace_text *reason,
		 u32 frames, u32 length),
	TP_ARGS(interface, reason, frames, length),
	TP_STRUCT__entry(
		__array(char, interface, IFNAMSIZ)
		__string_len(reason, reason->text, reason->length)
		__field(u32, frames)
		__field(u32, length)
	),
	TP_fast_assign(
		ipoib_trace_name(__entry->interface, interface);
		__assign_str(reason);
		__entry->frames = frames;
		__entry->length = length;
	),
	TP_printk("interface=%s reason=%s frames=%u length=%u", __entry->interface,
		  __get_str(reason), __entry->frames, __entry->length)
);

/* A path, a group or a connection has come to a state. */
DECLARE_EVENT_CLASS(ipoib_rs_state,
	TP_PROTO(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		 const struct ipoib_trace_text *state, u32 waiting),
	TP_ARGS(who, event, state, waiting),
	TP_STRUCT__entry(
		__array(char, interface, IFNAMSIZ)
		__string_len(event, event->text, event->length)
		__string_len(state, state->text, state->length)
		__array(u8, gid, 16)
		__field(u32, qpn)
		__field(u32, waiting)
	),
	TP_fast_assign(
		ipoib_trace_name(__entry->interface, &who->interface);
		__assign_str(event);
		__assign_str(state);
		memcpy(__entry->gid, who->gid, 16);
		__entry->qpn = who->qpn;
		__entry->waiting = waiting;
	),
	TP_printk("interface=%s gid=%pI6c qpn=0x%06x event=%s state=%s waiting=%u",
		  __entry->interface, __entry->gid, __entry->qpn, __get_str(event),
		  __get_str(state), __entry->waiting)
);

DEFINE_EVENT(ipoib_rs_state, path,
	TP_PROTO(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		 const struct ipoib_trace_text *state, u32 waiting),
	TP_ARGS(who, event, state, waiting)
);

DEFINE_EVENT(ipoib_rs_state, group,
	TP_PROTO(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		 const struct ipoib_trace_text *state, u32 waiting),
	TP_ARGS(who, event, state, waiting)
);

DEFINE_EVENT(ipoib_rs_state, connection,
	TP_PROTO(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		 const struct ipoib_trace_text *state, u32 waiting),
	TP_ARGS(who, event, state, waiting)
);

TRACE_EVENT(held,
	TP_PROTO(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		 u32 msg_id, u32 waited_us),
	TP_ARGS(who, event, msg_id, waited_us),
	TP_STRUCT__entry(
		__array(char, interface, IFNAMSIZ)
		__string_len(event, event->text, event->length)
		__array(u8, gid, 16)
		__field(u32, qpn)
		__field(u32, msg_id)
		__field(u32, waited_us)
	),
	TP_fast_assign(
		ipoib_trace_name(__entry->interface, &who->interface);
		__assign_str(event);
		memcpy(__entry->gid, who->gid, 16);
		__entry->qpn = who->qpn;
		__entry->msg_id = msg_id;
		__entry->waited_us = waited_us;
	),
	TP_printk("interface=%s gid=%pI6c qpn=0x%06x event=%s msg_id=%u waited_us=%u",
		  __entry->interface, __entry->gid, __entry->qpn, __get_str(event),
		  __entry->msg_id, __entry->waited_us)
);

#endif

/* This part must be outside protection. The directory is given with -I. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE events
#include <trace/define_trace.h>
