/* SPDX-License-Identifier: GPL-2.0 */
/*
 * C inlines and macros of debugfs that the debugfs_files crate calls.
 */
#ifndef DEBUGFS_FILES_HELPERS_H
#define DEBUGFS_FILES_HELPERS_H

#include <linux/debugfs.h>
#include <linux/fs.h>
#include <linux/seq_file.h>

struct dentry *debugfs_files_dir(const char *name, struct dentry *parent);
struct dentry *debugfs_files_file(const char *name, struct dentry *parent, void *data,
				  const struct file_operations *fops);
void debugfs_files_remove(struct dentry *dentry);

#endif
