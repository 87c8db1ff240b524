/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parameters that can be written while the module runs, which those of Rust cannot.
 */
#ifndef IPOIB_RS_HELPERS_PARAM_H
#define IPOIB_RS_HELPERS_PARAM_H

unsigned int ipoib_rs_rc_max_device_connections(void);

#endif
