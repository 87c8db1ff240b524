// SPDX-License-Identifier: GPL-2.0

//! Files of a device in debugfs.
//!
//! The kernel crate's files have no owner: one that is open when a module goes refers to what is no
//! longer there. These keep the module.
//!
//! C headers: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h).

use core::marker::PhantomData;
use core::ptr;

use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::seq_file::SeqFile;
use kernel::str::{CStr, CString};
use kernel::ModuleMetadata;

use crate::device::{Device, Driver};
use crate::joined::Joined;
use crate::raw_device::DeviceRef;

/// A driver whose devices can be looked into: in a directory of the driver's name there is one for
/// each device. It has the device's name, behind which, outside the initial network namespace, stand
/// a colon and the namespace's inode number.
pub trait Inspect: Driver {
    /// The names of a device's files, each with the function that prints the file.
    const FILES: &'static [(&'static CStr, Show<Self>)];
}

/// Prints a file; from the beginning once more if the reader's buffer was too small. Its errors are those of reading
/// the file.
///
/// # Context
///
/// Process context, without any lock. Must not wait for RTNL, whose holder may wait for this.
pub type Show<T> = fn(&Device<T>, &SeqFile) -> Result;

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

/// The subject of a file: the device, and the file's index.
pub(crate) struct Shown {
    dev: DeviceRef,
    id: usize,
}

/// The directory of a device.
///
/// # Invariants
///
/// The files in `dir` show elements of `shown`, which do not move. Fields are dropped in this order: `dir` waits for
/// readers.
pub(crate) struct Directory<S = Shown> {
    dir: Dir,
    shown: KVec<S>,
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
        let mut shown = KVec::with_capacity(T::FILES.len(), GFP_KERNEL)?;
        for id in 0..T::FILES.len() {
            let dev = dev.get();
            shown.push(Shown { dev, id }, GFP_KERNEL)?;
        }
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
        let this = Self { dir, shown };
        // SAFETY: The operations are for `Shown` of a device of `T`'s.
        unsafe { this.fill(T::FILES.iter().map(|file| file.0), &Operations::<T>::TABLE) };
        Ok(this)
    }
}

impl<S> Directory<S> {
    /// Makes a file for each name, which shows the element at that place.
    ///
    /// # Safety
    ///
    /// `operations` must be for such elements.
    unsafe fn fill<'a>(
        &self,
        names: impl Iterator<Item = &'a CStr>,
        operations: &'static bindings::file_operations,
    ) {
        for (name, shown) in names.zip(&self.shown) {
            let data = ptr::from_ref(shown).cast_mut().cast();
            // SAFETY: The name is copied. The element stays where it is, and is dropped after the directory, by the
            // type invariant; the rest by this function's requirements.
            unsafe {
                bindings::ipoib_rs_debugfs_file(name.as_char_ptr(), self.dir.0, data, operations);
            }
        }
    }
}

/// The operations of files that show [`Shown`] of a device of `T`'s.
struct Operations<T>(PhantomData<T>);

impl<T: Inspect> Operations<T> {
    const TABLE: bindings::file_operations = bindings::file_operations {
        owner: <T as Driver>::OwnerModule::THIS_MODULE.as_ptr().cast(),
        open: Some(Self::open),
        read: Some(bindings::seq_read),
        llseek: Some(bindings::seq_lseek),
        release: Some(bindings::single_release),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by debugfs for a file of these operations.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: By this function's requirements; any bits of the union are a pointer.
        unsafe { bindings::single_open(file, Some(Self::show), (*inode).i_private) }
    }

    /// # Safety
    ///
    /// Called by debugfs for a file that [`Self::open`] has opened, with a `seq_file` that nobody else uses.
    unsafe extern "C" fn show(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
        from_result(|| {
            // SAFETY: By this function's requirements; debugfs uses the file, whose element is there until then.
            let (out, shown) = unsafe {
                let shown = (*seq).private.cast_const().cast::<Shown>();
                (SeqFile::from_raw(seq.cast()), &*shown)
            };
            // SAFETY: A registered device of `T`'s, which the element holds.
            let dev = unsafe { Device::<T>::from_raw(shown.dev.as_raw()) };
            let (_, show) = T::FILES.get(shown.id).ok_or(EINVAL)?;
            show(dev, out)?;
            Ok(0)
        })
    }
}

#[cfg(CONFIG_DEBUG_FS)]
#[kunit_tests(rust_netdev_debugfs)]
mod tests {
    use kernel::sync::atomic::{Atomic, Relaxed};
    use kernel::sync::Arc;

    use super::*;
    use crate::dummy::Dummy;

    impl Inspect for Dummy {
        const FILES: &'static [(&'static CStr, Show<Self>)] = &[];
    }

    /// Notes whether its file was still there when it was dropped.
    struct Witness {
        dir: *mut bindings::dentry,
        outlived: Arc<Atomic<u32>>,
    }

    // SAFETY: The pointer is only given to debugfs.
    unsafe impl Send for Witness {}
    // SAFETY: As above.
    unsafe impl Sync for Witness {}

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

    /// Files go before the data that they show.
    #[test]
    fn files_go_before_what_they_show() -> Result {
        let dir = Dir::new(c"kunit_netdev");
        // SAFETY: The name is a string. If there is no debugfs, this is null, which `dput` takes.
        let raw = unsafe {
            bindings::debugfs_lookup(c"kunit_netdev".as_char_ptr(), core::ptr::null_mut())
        };
        let outlived = Arc::new(Atomic::new(0), GFP_KERNEL)?;
        let mut shown = KVec::with_capacity(1, GFP_KERNEL)?;
        shown.push(
            Witness {
                dir: raw,
                outlived: outlived.clone(),
            },
            GFP_KERNEL,
        )?;
        let directory = Directory { dir, shown };
        // SAFETY: Nobody opens the file.
        unsafe { directory.fill(core::iter::once(c"file"), &Operations::<Dummy>::TABLE) };
        drop(directory);
        // SAFETY: `debugfs_lookup` took the reference.
        unsafe { bindings::dput(raw) };
        assert_eq!(outlived.load(Relaxed), 0);
        Ok(())
    }
}
