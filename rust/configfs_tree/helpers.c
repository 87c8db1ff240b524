// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros of configfs and the module loader that the configfs_tree crate calls.
 */

#include "helpers.h"

#include <linux/module.h>

void configfs_tree_init_mutex(struct configfs_subsystem *subsys)
{
	mutex_init(&subsys->su_mutex);
}

void configfs_tree_add_default(struct config_group *group, struct config_group *parent)
{
	configfs_add_default_group(group, parent);
}

/* Whether there is no directory below it at the moment. */
bool configfs_tree_is_empty(struct configfs_subsystem *subsys)
{
	bool empty;

	mutex_lock(&subsys->su_mutex);
	empty = list_empty(&subsys->su_group.cg_children);
	mutex_unlock(&subsys->su_mutex);
	return empty;
}

void configfs_tree_keep_module(struct module *module)
{
	__module_get(module);
}
