/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Parts of ipoib_rs that have to be in C, for the ipoib_module crate.
 */
#ifndef IPOIB_MODULE_HELPERS_H
#define IPOIB_MODULE_HELPERS_H

const char *ipoib_module_ports(void);
const void *ipoib_module_decoy(void);

#endif
