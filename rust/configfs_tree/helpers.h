/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros of configfs and the module loader that the configfs_tree crate calls.
 */
#ifndef CONFIGFS_TREE_HELPERS_H
#define CONFIGFS_TREE_HELPERS_H

#include <linux/configfs.h>

struct module;

void configfs_tree_init_mutex(struct configfs_subsystem *subsys);
void configfs_tree_add_default(struct config_group *group, struct config_group *parent);
bool configfs_tree_is_empty(struct configfs_subsystem *subsys);
void configfs_tree_keep_module(struct module *module);

#endif
