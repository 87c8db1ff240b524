// SPDX-License-Identifier: GPL-2.0
/*
 * Parameters that can be written while the module runs, which those of Rust cannot.
 */

#include "helpers_param.h"

#include <linux/compiler.h>
#include <linux/moduleparam.h>

static unsigned int rc_max_device_connections = 1024;

static int set(const char *val, const struct kernel_param *kp)
{
	return param_set_uint_minmax(val, kp, 1, 65536);
}

static const struct kernel_param_ops ops = {
	.set = set,
	.get = param_get_uint,
};

module_param_cb(rc_max_device_connections, &ops, &rc_max_device_connections, 0644);
MODULE_PARM_DESC(rc_max_device_connections,
		 "Connections that all interfaces on an RDMA device may have together; 1 to 65536");

unsigned int ipoib_rs_rc_max_device_connections(void)
{
	return READ_ONCE(rc_max_device_connections);
}
