// SPDX-License-Identifier: GPL-2.0

//! Files of a device in debugfs.
//!
//! The kernel crate's files have no owner: one that is open when a module goes refers to what is no
//! longer there. These keep the module.
//!
//! C headers: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h).

use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
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
    /// # Errors
    ///
    /// Those of reading the file.
    ///
    /// # Context
    ///
    /// Process context, without any lock. Must not wait for RTNL, whose holder may wait for this.
    fn show(dev: &Device<Self>, id: usize, out: &SeqFile) -> Result;
}

/// A directory in debugfs, or none where debugfs has no room or is not there. Dropping it removes it
/// and all in it, and waits for those who read there.
pub(crate) struct Dir(*mut bindings::dentry);

// SAFETY: Debugfs does its own locking.
unsafe impl Send for Dir {}
// SAFETY: As above.
unsafe impl Sync for Dir {}

impl Dir {
    /// A directory at the root of debugfs.
    pub(crate) fn new(name: &CStr) -> Self {
        // SAFETY: The name is copied.
        Self(unsafe { bindings::ipoib_rs_debugfs_dir(name.as_char_ptr(), core::ptr::null_mut()) })
    }

    /// A directory in this one, which must not outlive it.
    fn subdir(&self, name: &CStr) -> Self {
        // SAFETY: The name is copied; an error in place of a directory is passed on.
        Self(unsafe { bindings::ipoib_rs_debugfs_dir(name.as_char_ptr(), self.0) })
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        // SAFETY: Made by `ipoib_rs_debugfs_dir`; an error in place of a directory is ignored.
        unsafe { bindings::ipoib_rs_debugfs_remove(self.0) };
    }
}

/// What a file shows.
#[repr(C)]
struct Content<T: Inspect> {
    file: bindings::ipoib_rs_file,
    dev: OwnedDevice<T>,
    id: usize,
}

/// A content of whatever driver's.
trait AnyContent {}

impl<T: Inspect> AnyContent for Content<T> {}

/// The directory of a device.
///
/// # Invariants
///
/// The files in `_dir`, which is dropped first, show `_contents`.
pub(crate) struct Directory {
    _dir: Dir,
    _contents: KVec<KBox<dyn AnyContent>>,
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
    /// Process context under RTNL. The result holds references to the device, and must not outlive
    /// `root`.
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
        let mut contents: KVec<KBox<dyn AnyContent>> =
            KVec::with_capacity(T::FILES.len(), GFP_KERNEL)?;
        for (id, name) in T::FILES.iter().enumerate() {
            let content = Content {
                file: bindings::ipoib_rs_file {
                    show: Some(show::<T>),
                },
                dev: dev.get_typed(),
                id,
            };
            let content = KBox::new(content, GFP_KERNEL)?;
            // SAFETY: The name is copied. The content stays where it is until the directory, which is
            // dropped before it on all ways, is gone.
            unsafe {
                bindings::ipoib_rs_debugfs_file(name.as_char_ptr(), dir.0, &raw const content.file);
            }
            contents.push(content, GFP_KERNEL)?;
        }
        // INVARIANT: As just made.
        Ok(Self {
            _dir: dir,
            _contents: contents,
        })
    }
}

/// # Safety
///
/// Called for the `file` of a [`Content<T>`] with a `seq_file` that nobody else uses.
unsafe extern "C" fn show<T: Inspect>(
    seq: *mut bindings::seq_file,
    file: *const bindings::ipoib_rs_file,
) -> c_int {
    from_result(|| {
        // SAFETY: By this function's requirements; the file is the first field of the content.
        let (out, content) =
            unsafe { (SeqFile::from_raw(seq.cast()), &*file.cast::<Content<T>>()) };
        T::show(&content.dev, content.id, out)?;
        Ok(0)
    })
}
