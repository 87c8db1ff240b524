// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions over debugfs: directories, and files that show a text.
//!
//! As drivers in C do, a driver carries on where debugfs fails, or where the kernel has none: what is not there is
//! not shown.
//!
//! The kernel crate's `debugfs` has files without an owner: when one is closed after its module was unloaded, debugfs
//! looks for `release` in memory of the module's. An open file of this crate keeps the module.
//!
//! # Lifetimes
//!
//! `show` runs while debugfs uses the file, which [`File`] waits for when it is dropped, before it drops what is shown.
//! A read from an open file fails with `EIO` after that.
//!
//! C headers: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h).

#![crate_name = "debugfs_files"]

use core::fmt::{self, Write};
use core::marker::PhantomData;

use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::ModuleMetadata;

/// A directory or a file, or an error in place of it.
///
/// # Invariants
///
/// It is what debugfs has returned, and nobody else removes it.
struct Entry(*mut bindings::dentry, TextRef);

// SAFETY: debugfs has locks of its own.
unsafe impl Send for Entry {}
// SAFETY: As above.
unsafe impl Sync for Entry {}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; debugfs takes errors, too.
        unsafe { bindings::debugfs_files_remove(self.0) };
    }
}

/// A directory. It is removed when this and all that is in it have been dropped.
pub struct Dir {
    // Fields are dropped in this order.
    entry: Entry,
    _parent: Option<Arc<Dir>>,
}

impl Dir {
    /// Makes a directory in another one, or in the root.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn new(name: &CStr, parent: Option<&Arc<Dir>>) -> Result<Arc<Self>> {
        let at = parent.map_or(core::ptr::null_mut(), |parent| parent.entry.0);
        // SAFETY: The name is a string, which is copied. The parent exists as long as this has a reference to it, and
        // may be an error or null.
        let entry = unsafe { bindings::debugfs_files_dir(name.as_char_ptr(), at) };
        // INVARIANT: It is new. Removing the parent removes what is in it, but the parent is kept.
        let entry = Entry(entry, TextRef::new());
        let parent = parent.cloned();
        Ok(Arc::new(
            Self {
                entry,
                _parent: parent,
            },
            GFP_KERNEL,
        )?)
    }
}

/// Something that a file shows.
pub trait Show: Send + Sync + 'static {
    /// The driver's module.
    type Module: ModuleMetadata;

    /// Prints it.
    ///
    /// # Errors
    ///
    /// Those of `out`, which has run out of room: it is called again with more.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Several may run at a time. Whoever drops the file waits for it.
    fn show(&self, out: &mut Text<'_>) -> fmt::Result;
}

/// A file that everybody reads. Dropping this removes it.
pub struct File<T: Show> {
    // Fields are dropped in this order: `show` has ended for good when the entry is gone.
    _entry: Entry,
    _shown: KBox<T>,
    _parent: Arc<Dir>,
}

impl<T: Show> File<T> {
    const OPERATIONS: bindings::file_operations = bindings::file_operations {
        owner: T::Module::THIS_MODULE.as_ptr().cast(),
        open: Some(open::<T>),
        read: Some(bindings::seq_read),
        llseek: Some(bindings::seq_lseek),
        release: Some(bindings::single_release),
        ..pin_init::zeroed()
    };

    /// Makes a file in a directory.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub fn new(name: &CStr, parent: &Arc<Dir>, shown: T) -> Result<Self> {
        let shown = KBox::new(shown, GFP_KERNEL)?;
        let data = (&raw const *shown).cast_mut().cast::<c_void>();
        // SAFETY: The name is a string, which is copied. The parent exists, or is an error. `data` outlives the file,
        // and is what its operations, which are static, want.
        let entry = unsafe {
            bindings::debugfs_files_file(
                name.as_char_ptr(),
                parent.entry.0,
                data,
                &Self::OPERATIONS,
            )
        };
        // INVARIANT: As in `Dir::new`.
        Ok(Self {
            _entry: Entry(entry, TextRef::new()),
            _shown: shown,
            _parent: parent.clone(),
        })
    }
}

/// A text that is being printed.
pub struct Text<'a> {
    seq: *mut bindings::seq_file,
    _used: PhantomData<&'a mut bindings::seq_file>,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // SAFETY: The file is being shown, and the text is as long as that.
        match unsafe { bindings::seq_write(self.seq, text.as_ptr().cast(), text.len()) } {
            0 => Ok(()),
            _ => Err(fmt::Error),
        }
    }
}

/// Opens a file.
///
/// # Safety
///
/// Called by debugfs for a file with the data of a `File<T>`.
unsafe extern "C" fn open<T: Show>(
    inode: *mut bindings::inode,
    file: *mut bindings::file,
) -> c_int {
    // SAFETY: By this function's requirements; any bits of the union are a pointer.
    unsafe { bindings::single_open(file, Some(show::<T>), (*inode).i_private) }
}

/// Shows a file.
///
/// # Safety
///
/// Called by debugfs for a file that [`open`] has opened, and that is not removed before this returns.
unsafe extern "C" fn show<T: Show>(seq: *mut bindings::seq_file, _: *mut c_void) -> c_int {
    // SAFETY: By this function's requirements.
    let shown = unsafe { &*(*seq).private.cast::<T>() };
    let mut out = Text {
        seq,
        _used: PhantomData,
    };
    // seq_file has noted that there is no more room.
    let _ = shown.show(&mut out);
    0
}
