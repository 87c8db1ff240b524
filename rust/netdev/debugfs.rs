// SPDX-License-Identifier: GPL-2.0

//! Files of a device in debugfs.
//!
//! C headers: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h).

use ipoib_sys::bindings;
use kernel::debugfs::{Dir, File, Writer};
use kernel::fmt;
use kernel::prelude::*;
use kernel::str::{CStr, CString};

use crate::device::{Device, Driver, OwnedDevice};

/// A driver whose devices can be looked into: in a directory of the driver's name there is one for
/// each device. It has the device's name, behind which, outside the initial network namespace, stand
/// a colon and the namespace's inode number.
pub trait Inspect: Driver {
    /// The names of a device's files.
    const FILES: &'static [&'static CStr];

    /// Prints file `id`, an index of [`Inspect::FILES`]; from the beginning once more if the
    /// reader's buffer was too small.
    ///
    /// # Context
    ///
    /// Process context, without any lock. Must not wait for RTNL, whose holder may wait for this.
    fn show(dev: &Device<Self>, id: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

/// What a file shows.
struct Content<T: Inspect> {
    dev: OwnedDevice<T>,
    id: usize,
}

impl<T: Inspect> Writer for Content<T> {
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        T::show(&self.dev, self.id, f)
    }
}

/// A file of whatever driver's.
trait AnyFile: Send {}

impl<T: Inspect> AnyFile for Pin<KBox<File<Content<T>>>> {}

/// The directory of a device. Dropping it removes the files, and waits for those who read them.
pub(crate) struct Directory {
    _files: KVec<KBox<dyn AnyFile>>,
    _dir: Dir,
}

impl Directory {
    /// Makes the directory of `dev` in `root`, under its present name and namespace.
    ///
    /// # Errors
    ///
    /// `ENOMEM`. That debugfs has no room or is not there is no error.
    ///
    /// # Context
    ///
    /// Process context under RTNL. The result holds references to the device.
    pub(crate) fn new<T: Inspect>(root: &Dir, dev: &Device<T>) -> Result<Self> {
        // SAFETY: RTNL keeps the name, which is a string, and the namespace as they are.
        let (name, net) = unsafe {
            (
                CStr::from_char_ptr((*dev.as_raw()).name.as_ptr()),
                bindings::ipoib_rs_netdev_net(dev.as_raw()),
            )
        };
        let dir = if core::ptr::eq(net, &raw const bindings::init_net) {
            root.subdir(name)
        } else {
            // SAFETY: The device keeps its namespace.
            let inode = unsafe { (*net).ns.inum };
            let name = name.to_str().map_err(|_| EINVAL)?;
            root.subdir(&CString::try_from_fmt(fmt!("{name}:{inode}"))?)
        };
        let mut files = KVec::with_capacity(T::FILES.len(), GFP_KERNEL)?;
        for (id, name) in T::FILES.iter().enumerate() {
            let content = Content {
                dev: dev.get_typed(),
                id,
            };
            let file = KBox::pin_init(dir.read_only_file(name, content), GFP_KERNEL)?;
            let file: KBox<dyn AnyFile> = KBox::new(file, GFP_KERNEL)?;
            files.push(file, GFP_KERNEL)?;
        }
        Ok(Self {
            _files: files,
            _dir: dir,
        })
    }
}
