// SPDX-License-Identifier: GPL-2.0

//! Files of a device in debugfs.
//!
//! The kernel crate's files have no owner: one that is open when a module goes refers to what is no
//! longer there. These keep the module.
//!
//! C headers: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h).

use core::ptr::NonNull;

use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::str::{CStr, CString};

use crate::device::{Device, Driver, OwnedDevice};
use crate::named::Joined;

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

/// Content of a file.
trait Show: Send + Sync + 'static {
    /// As [`Inspect::show`].
    fn show(&self, out: &SeqFile) -> Result;
}

/// Content of a file of a device.
struct OfDevice<T: Inspect> {
    dev: OwnedDevice<T>,
    id: usize,
}

impl<T: Inspect> Show for OfDevice<T> {
    fn show(&self, out: &SeqFile) -> Result {
        T::show(&self.dev, self.id, out)
    }
}

/// A debugfs file, and the object that it shows.
#[repr(C)]
struct Content<S: Show> {
    file: bindings::ipoib_rs_file,
    shown: S,
}

/// A content of whatever shows something.
trait AnyContent: Send + Sync {}

impl<S: Show> AnyContent for Content<S> {}

/// A content to which debugfs has a pointer. So there is no box, whose owner would be the only one to have one.
///
/// # Invariants
///
/// The pointer came out of a [`KBox`], which this owns.
struct Shared(NonNull<dyn AnyContent>);

// SAFETY: It owns the content, which is `Send`.
unsafe impl Send for Shared {}
// SAFETY: It gives nobody a reference.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; debugfs has forgotten it, as `Directory` sees to.
        drop(unsafe { KBox::from_raw(self.0.as_ptr()) });
    }
}

/// The directory of a device.
///
/// # Invariants
///
/// The files in `dir` show some of `contents`. Whoever drops this drops `dir` first, which waits for readers.
pub(crate) struct Directory {
    dir: Dir,
    contents: KVec<Shared>,
}

impl Directory {
    /// Adds a file.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn add<S: Show>(&mut self, name: &CStr, shown: S) -> Result {
        let content = Content {
            file: bindings::ipoib_rs_file {
                show: Some(show::<S>),
            },
            shown,
        };
        self.contents.reserve(1, GFP_KERNEL)?;
        let content = KBox::into_raw(KBox::new(content, GFP_KERNEL)?);
        // SAFETY: It came out of a box.
        let shared = Shared(unsafe { NonNull::new_unchecked(content) });
        // INVARIANT: There is room for it, so that it is among the contents before there is a file.
        self.contents.push(shared, GFP_KERNEL)?;
        // SAFETY: The name is copied. The content stays where it is until it is dropped, after the directory
        // by the type invariant. Its first field is what `show` gets.
        unsafe {
            bindings::ipoib_rs_debugfs_file(name.as_char_ptr(), self.dir.0, content.cast());
        }
        Ok(())
    }

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
            let inode = CString::try_from_fmt(fmt!(":{inode}"))?;
            root.subdir(Joined::new(&[name, &inode])?.as_c_str())
        };
        // INVARIANT: There is no file yet. All that goes wrong from now on drops this as it should be.
        let mut this = Self {
            dir,
            contents: KVec::new(),
        };
        for (id, name) in T::FILES.iter().enumerate() {
            let dev = dev.get_typed();
            this.add(name, OfDevice { dev, id })?;
        }
        Ok(this)
    }
}

/// # Safety
///
/// Called for a [`Content<S>`], which begins with `file`, with a `seq_file` that nobody else uses.
unsafe extern "C" fn show<S: Show>(
    seq: *mut bindings::seq_file,
    file: *const bindings::ipoib_rs_file,
) -> c_int {
    from_result(|| {
        // SAFETY: By this function's requirements; the pointer is to the whole content.
        let (out, content) =
            unsafe { (SeqFile::from_raw(seq.cast()), &*file.cast::<Content<S>>()) };
        content.shown.show(out)?;
        Ok(0)
    })
}

#[cfg(CONFIG_DEBUG_FS)]
#[kunit_tests(ipoib_rs_debugfs)]
mod tests {
    use kernel::sync::atomic::{Atomic, Relaxed};
    use kernel::sync::Arc;

    use super::*;

    /// Notes whether its file was still there when it was dropped.
    struct Witness {
        dir: *mut bindings::dentry,
        outlived: Arc<Atomic<u32>>,
    }

    // SAFETY: The pointer is only given to debugfs.
    unsafe impl Send for Witness {}
    // SAFETY: As above.
    unsafe impl Sync for Witness {}

    impl Show for Witness {
        fn show(&self, _out: &SeqFile) -> Result {
            Ok(())
        }
    }

    impl Drop for Witness {
        fn drop(&mut self) {
            // SAFETY: The test holds a reference to the directory; the name is a string.
            let file = unsafe { bindings::debugfs_lookup(c"file".as_char_ptr(), self.dir) };
            if !file.is_null() {
                self.outlived.fetch_add(1, Relaxed);
                // SAFETY: `debugfs_lookup` has taken a reference.
                unsafe { bindings::dput(file) };
            }
        }
    }

    /// Making the directory of a device stops where memory does: what files show goes after the files.
    #[test]
    fn files_go_before_what_they_show() -> Result {
        let dir = Dir::new(c"ipoib_rs_kunit");
        // SAFETY: The name is a string. If there is no debugfs, this is null, which `dput` takes.
        let raw = unsafe {
            bindings::debugfs_lookup(c"ipoib_rs_kunit".as_char_ptr(), core::ptr::null_mut())
        };
        let outlived = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut half = Directory {
            dir,
            contents: KVec::new(),
        };
        let witness = Witness {
            dir: raw,
            outlived: outlived.clone(),
        };
        half.add(c"file", witness)?;
        drop(half);
        // SAFETY: `debugfs_lookup` took the reference.
        unsafe { bindings::dput(raw) };
        assert_eq!(outlived.load(Relaxed), 0);
        Ok(())
    }
}
