// SPDX-License-Identifier: GPL-2.0
/*
 * C inlines and macros of debugfs that the debugfs_files crate calls.
 */

#include "helpers.h"

struct dentry *debugfs_files_dir(const char *name, struct dentry *parent)
{
	return debugfs_create_dir(name, parent);
}

struct dentry *debugfs_files_file(const char *name, struct dentry *parent, void *data,
				  const struct file_operations *fops)
{
	return debugfs_create_file(name, 0444, parent, data, fops);
}

void debugfs_files_remove(struct dentry *dentry)
{
	debugfs_remove(dentry);
}
