/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Arguments of the tracepoints of ipoib_rs, from the ipoib_trace crate.
 */
#ifndef IPOIB_TRACE_HELPERS_H
#define IPOIB_TRACE_HELPERS_H

#include <linux/if.h>
#include <linux/minmax.h>
#include <linux/string.h>
#include <linux/types.h>

/* Not ended by a zero. */
struct ipoib_trace_text {
	const char *text;
	u32 length;
};

/* A histogram's key has room for one text of unknown length only: a name has a size. */
static inline void ipoib_trace_name(char to[IFNAMSIZ], const struct ipoib_trace_text *name)
{
	u32 length = min_t(u32, name->length, IFNAMSIZ - 1);

	memcpy(to, name->text, length);
	memset(to + length, 0, IFNAMSIZ - length);
}

/* Somebody on the link: a peer, or a multicast group, whose QPN is 0xffffff. */
struct ipoib_trace_who {
	struct ipoib_trace_text interface;
	const u8 *gid;
	u32 qpn;
};

void ipoib_trace_drop(const struct ipoib_trace_text *interface,
		      const struct ipoib_trace_text *reason, u32 frames, u32 length);
void ipoib_trace_path(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		      const struct ipoib_trace_text *state, u32 waiting);
void ipoib_trace_group(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		       const struct ipoib_trace_text *state, u32 waiting);
void ipoib_trace_connection(const struct ipoib_trace_who *who,
			    const struct ipoib_trace_text *event,
			    const struct ipoib_trace_text *state, u32 waiting);
void ipoib_trace_held(const struct ipoib_trace_who *who, const struct ipoib_trace_text *event,
		      u32 msg_id, u32 waited_us);

#endif
