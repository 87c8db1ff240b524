// SPDX-License-Identifier: GPL-2.0
/*
 * Tracepoints of ipoib_rs, for the ipoib_trace crate.
 */

#define CREATE_TRACE_POINTS
#include "events.h"

void ipoib_trace_drop(const struct ipoib_trace_text *interface,
		      const struct ipoib_trace_text *reason, u32 frames, u32 length)
{
	trace_drop(interface, reason, frames, length);
}

void ipoib_trace_path(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		      const struct ipoib_trace_text *state, u32 waiting)
{
	trace_path(who, event, state, waiting);
}

void ipoib_trace_group(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		       const struct ipoib_trace_text *state, u32 waiting)
{
	trace_group(who, event, state, waiting);
}

void ipoib_trace_connection(const struct ipoib_trace_who *who,
			    const struct ipoib_trace_text *event,
			    const struct ipoib_trace_text *state, u32 waiting)
{
	trace_connection(who, event, state, waiting);
}

void ipoib_trace_held(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		      u32 msg_id, u32 waited_us)
{
	trace_held(who, event, msg_id, waited_us);
}
