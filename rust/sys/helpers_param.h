/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parameters of kinds that those of Rust do not have.
 */
#ifndef IPOIB_RS_HELPERS_PARAM_H
#define IPOIB_RS_HELPERS_PARAM_H

unsigned int ipoib_rs_rc_max_device_connections(void);
const char *ipoib_rs_ports(void);

#endif
