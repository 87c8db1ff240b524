// SPDX-License-Identifier: GPL-2.0

//! Files of a directory, each of which is a text.

use core::fmt::{self, Write};
use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::slice;
use core::str;

use ipoib_sys::bindings;
use kernel::error::from_result;
use kernel::ffi::c_char;
use kernel::prelude::*;
use kernel::ModuleMetadata;

use crate::directory::{Directory, Entry};

/// The most files of a directory.
pub const MAX_FILES: usize = 31;

/// Bytes of a file's text at most, as configfs wants it on every architecture.
const LIMIT: usize = 4096;

/// A file that shows something of a directory of type `T`.
pub trait Show<T: Directory> {
    /// The name of the file.
    const NAME: &'static CStr;

    /// Prints the text, without a newline at its end.
    ///
    /// # Errors
    ///
    /// Those that `read` is to give. A text that is too long is one (`EINVAL`).
    ///
    /// # Context
    ///
    /// Process context without the subsystem's mutex; several may run at a time. `rmdir` waits for it.
    fn show(directory: &T, out: &mut Text<'_>) -> Result;
}

/// A file that can be written, too.
pub trait Store<T: Directory>: Show<T> {
    /// Takes a text, of which the newline at the end is cut off, in one piece.
    ///
    /// # Errors
    ///
    /// Those that `write` is to give.
    ///
    /// # Context
    ///
    /// As that of [`Show::show`].
    fn store(directory: &T, text: &str) -> Result;
}

/// A file in directories of type `T`.
///
/// # Invariants
///
/// Its functions are those for items of an `Entry<T>`.
#[repr(transparent)]
pub struct File<T> {
    attribute: bindings::configfs_attribute,
    _directory: PhantomData<fn(T) -> T>,
}

impl<T: Directory> File<T> {
    /// A file that everybody reads and nobody writes.
    pub const fn read_only<F: Show<T>>() -> Self {
        // INVARIANT: The function is that for the type.
        Self {
            attribute: bindings::configfs_attribute {
                ca_name: kernel::str::as_char_ptr_in_const_context(F::NAME),
                ca_owner: T::Module::THIS_MODULE.as_ptr().cast(),
                ca_mode: 0o444,
                show: Some(show::<T, F>),
                store: None,
            },
            _directory: PhantomData,
        }
    }

    /// A file that everybody reads and root writes.
    pub const fn writable<F: Store<T>>() -> Self {
        let mut file = Self::read_only::<F>();
        // INVARIANT: The function is that for the type.
        file.attribute.ca_mode = 0o644;
        file.attribute.store = Some(store::<T, F>);
        file
    }
}

/// A text that is being printed.
pub struct Text<'a> {
    /// Rest of the page.
    room: &'a mut [MaybeUninit<u8>],
    /// Bytes that have been printed.
    len: usize,
}

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.room.get_mut(self.len..).unwrap_or_default();
        let room = room.get_mut(..text.len()).ok_or(fmt::Error)?;
        for (place, byte) in room.iter_mut().zip(text.bytes()) {
            place.write(byte);
        }
        self.len += text.len();
        Ok(())
    }
}

/// Shows a file.
///
/// # Safety
///
/// Called by configfs for the item of an `Entry<T>`, to which it has a reference, with a page that nobody else
/// uses.
unsafe extern "C" fn show<T: Directory, F: Show<T>>(
    item: *mut bindings::config_item,
    page: *mut c_char,
) -> isize {
    from_result(|| {
        // SAFETY: By this function's requirements. A page may hold anything, or nothing yet.
        let (directory, room) = unsafe {
            (
                Entry::<T>::value(item),
                slice::from_raw_parts_mut(page.cast::<MaybeUninit<u8>>(), LIMIT),
            )
        };
        let mut out = Text { room, len: 0 };
        F::show(directory, &mut out)?;
        out.write_str("\n")?;
        // At most `LIMIT`.
        Ok(out.len as isize)
    })
}

/// Stores to a file.
///
/// # Safety
///
/// Called by configfs for the item of an `Entry<T>`, to which it has a reference, with the address and the
/// number of bytes that nobody writes.
unsafe extern "C" fn store<T: Directory, F: Store<T>>(
    item: *mut bindings::config_item,
    page: *const c_char,
    count: usize,
) -> isize {
    from_result(|| {
        // SAFETY: By this function's requirements.
        let (directory, bytes) = unsafe {
            (
                Entry::<T>::value(item),
                slice::from_raw_parts(page.cast::<u8>(), count),
            )
        };
        // configfs ends a text with a zero, and cuts off what is too long.
        if count >= LIMIT - 1 {
            return Err(E2BIG);
        }
        let text = str::from_utf8(bytes).map_err(|_| EINVAL)?;
        F::store(directory, text.strip_suffix('\n').unwrap_or(text))?;
        // Less than `LIMIT`.
        Ok(count as isize)
    })
}
