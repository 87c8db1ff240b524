// SPDX-License-Identifier: GPL-2.0
/*
 * Tracepoints of ib_hwsim, for the packet_trace crate.
 */

#define CREATE_TRACE_POINTS
#include "events.h"

void packet_trace_tx(const struct packet_trace *packet)
{
	trace_packet_tx(packet);
}

void packet_trace_rx(const struct packet_trace *packet)
{
	trace_packet_rx(packet);
}

void packet_trace_drop(const struct packet_trace *packet)
{
	trace_packet_drop(packet);
}
