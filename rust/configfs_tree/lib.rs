// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over configfs: objects of a driver that users make and remove as directories.
//!
//! A driver registers a [`Subsystem`], which is a directory in the root of configfs. A kind of directory below
//! it is a type that implements [`Directory`]: its value belongs to one directory, lives as long as the
//! `config_item` does, and is dropped with the last reference. A directory has files ([`File`]), which show and
//! store texts; directories of its own that come and go with it ([`Defaults`]); and, if its type is a
//! [`Parent`], those that users make in it.
//!
//! The kernel crate's `configfs` is there only if configfs is not a module, and has neither default groups nor
//! owners of files.
//!
//! # Lifetimes
//!
//! A reference to a directory's value is given to the driver by callbacks only, while configfs keeps the item:
//!
//! - `show` and `store` run under the read side of a semaphore. `rmdir` takes the write side and marks the
//!   directory as dead, behind which no such call begins, before it takes the item out of the tree.
//! - [`Parent::make`] and [`Parent::remove`] run under the mutex of the subsystem, with the directory's inode
//!   locked, so that it cannot be removed meanwhile; and the item to be removed has a reference of configfs's.
//!
//! # Modules
//!
//! Each directory that a user makes holds two references to the driver's module, and each open file one: the module
//! cannot be unloaded as long as there is either, and gets no new ones once it is being unloaded. Where
//! directories end, configfs gives the references to the module back when it has put those to the item, and
//! no callback is left. A [`Subsystem`] that is dropped elsewhere while it has directories stays, and keeps the
//! module for good.
//!
//! C headers: [`include/linux/configfs.h`](srctree/include/linux/configfs.h).

#![crate_name = "configfs_tree"]

pub mod binary;
pub mod directory;
pub mod file;
pub mod subsystem;

pub use binary::{BinaryFile, Bytes, Read};
pub use directory::{Children, Defaults, Directory, Parent};
pub use file::{File, Show, Store, Text};
pub use subsystem::Subsystem;

/// Prefix of the kernel crate's log lines.
const __LOG_PREFIX: &[u8] = b"configfs_tree\0";
