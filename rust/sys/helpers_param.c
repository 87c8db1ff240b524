// SPDX-License-Identifier: GPL-2.0
/*
 * Parameters of kinds that those of Rust do not have: written while the module runs, and strings.
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

static char *ports;

module_param(ports, charp, 0444);
MODULE_PARM_DESC(ports,
		 "Ports to make interfaces on by itself: none, all (of InfiniBand), or a list such as mlx5_0:1,mlx5_1:1; by default none, or all with replace=1");

/* NULL if it was not given. */
const char *ipoib_rs_ports(void)
{
	return ports;
}
