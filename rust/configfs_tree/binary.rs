// SPDX-License-Identifier: GPL-2.0

//! Files of a directory that are bytes, of any length, to be read.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr;
use core::slice;

use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::ModuleMetadata;

use crate::directory::{Directory, Entry};

/// The most such files of a directory.
pub const MAX_BINARY_FILES: usize = 3;

/// A file of bytes in a directory of type `T`.
///
/// An open file keeps returning the content of its first read.
pub trait Read<T: Directory> {
    /// The name of the file.
    const NAME: &'static CStr;

    /// The number of bytes that there are, of which a reader gets no more.
    ///
    /// # Errors
    ///
    /// Those that `read` is to give.
    ///
    /// # Context
    ///
    /// Process context without the subsystem's mutex; several may run at a time. `rmdir` waits for it.
    fn len(directory: &T) -> Result<usize>;

    /// Gives the bytes, as far as there is room.
    ///
    /// # Errors
    ///
    /// Those that `read` is to give. That there are fewer than before is one (`EAGAIN`).
    ///
    /// # Context
    ///
    /// As that of [`Read::len`].
    fn read(directory: &T, out: &mut Bytes<'_>) -> Result;
}

/// Bytes that are being read.
pub struct Bytes<'a> {
    room: &'a mut [MaybeUninit<u8>],
    len: usize,
}

impl Bytes<'_> {
    /// Bytes that there is room for.
    pub fn room(&self) -> usize {
        self.room.len() - self.len
    }

    /// Adds bytes, as far as there is room.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = self.room.get_mut(self.len..).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(bytes) {
            place.write(*byte);
        }
        self.len += bytes.len().min(room.len());
    }
}

/// A file of bytes that root reads, in directories of type `T`.
///
/// # Invariants
///
/// Its functions are those for items of an `Entry<T>`.
#[repr(transparent)]
pub struct BinaryFile<T> {
    attribute: bindings::configfs_bin_attribute,
    _directory: PhantomData<fn(T) -> T>,
}

impl<T: Directory> BinaryFile<T> {
    /// Makes one.
    pub const fn new<F: Read<T>>() -> Self {
        // INVARIANT: The function is that for the type.
        Self {
            attribute: bindings::configfs_bin_attribute {
                cb_attr: bindings::configfs_attribute {
                    ca_name: kernel::str::as_char_ptr_in_const_context(F::NAME),
                    ca_owner: T::Module::THIS_MODULE.as_ptr().cast(),
                    ca_mode: 0o400,
                    show: None,
                    store: None,
                },
                cb_private: ptr::null_mut(),
                cb_max_size: 0,
                read: Some(read::<T, F>),
                write: None,
            },
            _directory: PhantomData,
        }
    }
}

/// Reads a file, or gives its length if there is no memory.
///
/// # Safety
///
/// Called by configfs for the item of an `Entry<T>`, to which it has a reference, with null, or with the address and
/// the number of bytes that nobody else uses.
unsafe extern "C" fn read<T: Directory, F: Read<T>>(
    item: *mut bindings::config_item,
    memory: *mut c_void,
    count: usize,
) -> isize {
    from_result(|| {
        // SAFETY: By this function's requirements.
        let directory = unsafe { Entry::<T>::value(item) };
        if memory.is_null() {
            return isize::try_from(F::len(directory)?).map_err(|_| EFBIG);
        }
        // SAFETY: By this function's requirements. The memory may hold anything, or nothing yet.
        let room = unsafe { slice::from_raw_parts_mut(memory.cast::<MaybeUninit<u8>>(), count) };
        let mut out = Bytes { room, len: 0 };
        F::read(directory, &mut out)?;
        // configfs shows all of the memory.
        if out.len < count {
            return Err(EAGAIN);
        }
        isize::try_from(count).map_err(|_| EFBIG)
    })
}
