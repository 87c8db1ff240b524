// SPDX-License-Identifier: GPL-2.0

//! Files of a device in sysfs: `/sys/class/net/<interface>/`.

use core::ptr;

use ipoib_sys::bindings;
use kernel::error::{from_result, VTABLE_DEFAULT_ERROR};
use kernel::ffi::{c_char, c_int, c_uint};
use kernel::fmt::{self, Write};
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;
use kernel::str::CStr;

use crate::device::{Device, Driver};
use crate::rtnl::{retry, Rtnl};

/// A file.
pub struct File {
    /// Its name, which no file of the network core has.
    pub name: &'static CStr,
    /// Its permissions, such as 0o644; not 0o444 where [`Files::store`] knows it.
    pub mode: u16,
}

/// Returns true if sysfs takes files with these permissions.
pub(crate) const fn may_be(files: &[File]) -> bool {
    let mut at = 0;
    while at < files.len() {
        if files[at].mode & !0o664 != 0 {
            return false;
        }
        at += 1;
    }
    true
}

/// Text of a file that is read, a page at most; what is beyond is left out.
pub struct Page<'a> {
    bytes: &'a mut [u8],
    used: usize,
}

impl Write for Page<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_bytes(text.as_bytes());
        Ok(())
    }
}

impl Page<'_> {
    /// Appends bytes that need not be UTF-8, such as an interface's name.
    pub fn write_bytes(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[self.used..];
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        self.used += len;
    }
}

/// A driver whose devices may have files that can be read and written; without, there are none.
#[vtable]
pub trait Files: Driver {
    /// All files.
    const FILES: &'static [File] = &[];

    /// Returns true if a device, which is being registered, is to have file `id`, an index of [`Files::FILES`].
    fn has_file(_dev: &Device<Self>, _id: usize) -> bool {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Prints file `id`.
    ///
    /// # Errors
    ///
    /// Those of reading the file.
    ///
    /// # Context
    ///
    /// Process context, without any lock. Must not wait for RTNL, whose holder may wait for this.
    fn show(_dev: &Device<Self>, _id: usize, _page: &mut Page<'_>) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }

    /// Does what `text` says, which was written to file `id`, without the newline at its end. The device cannot be
    /// unregistered meanwhile.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what makes no sense, and whatever forbids it; nothing has changed then.
    fn store(_dev: &Device<Self>, _id: usize, _text: &[u8], _rtnl: &mut Rtnl) -> Result {
        build_error!(VTABLE_DEFAULT_ERROR)
    }
}

/// The files of a kind of device, as sysfs knows them.
///
/// # Invariants
///
/// `attributes` has an entry for each of `files`, and null behind them; `group` has `attributes`. None of the
/// vectors changes, so that what they hold stays where it is.
pub(crate) struct Group {
    group: KBox<bindings::attribute_group>,
    _attributes: KVec<*mut bindings::attribute>,
    _files: KVec<bindings::ipoib_rs_attr>,
}

// SAFETY: Nothing is written after it was made.
unsafe impl Send for Group {}
// SAFETY: As above.
unsafe impl Sync for Group {}

impl Group {
    /// Makes the files of `T`'s devices.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new<T: Files>() -> Result<Self> {
        let count = T::FILES.len();
        let mut files = KVec::<bindings::ipoib_rs_attr>::with_capacity(count, GFP_KERNEL)?;
        let mut attributes = KVec::with_capacity(count + 1, GFP_KERNEL)?;
        for (id, file) in T::FILES.iter().enumerate() {
            files.push(pin_init::zeroed(), GFP_KERNEL)?;
            let slot = &raw mut files[id];
            // SAFETY: The slot is writable and stays where it is, since there is room for all; the name is static.
            let attribute = unsafe {
                bindings::ipoib_rs_attr_init(slot, file.name.as_char_ptr(), file.mode, id as c_uint)
            };
            attributes.push(attribute, GFP_KERNEL)?;
        }
        attributes.push(ptr::null_mut(), GFP_KERNEL)?;
        let mut group = KBox::new(pin_init::zeroed(), GFP_KERNEL)?;
        // SAFETY: The attributes are those of `ipoib_rs_attr_init`, and stay where they are.
        unsafe { bindings::ipoib_rs_attr_group_init(&mut *group, attributes.as_mut_ptr()) };
        Ok(Self {
            group,
            _attributes: attributes,
            _files: files,
        })
    }

    /// The group, for the devices of a kind.
    pub(crate) fn as_raw(&self) -> *const bindings::attribute_group {
        &*self.group
    }
}

/// # Safety
///
/// Called for a device of `T`'s that is being registered or is.
pub(crate) unsafe extern "C" fn has<T: Files>(dev: *mut bindings::net_device, id: c_uint) -> bool {
    // SAFETY: By this function's requirements.
    !T::HAS_HAS_FILE || T::has_file(unsafe { Device::<T>::from_raw(dev) }, id as usize)
}

/// # Safety
///
/// Called for a file of a device of `T`'s that is registered, with a page to fill.
pub(crate) unsafe extern "C" fn show<T: Files>(
    dev: *mut bindings::net_device,
    id: c_uint,
    page: *mut c_char,
) -> c_int {
    from_result(|| {
        // SAFETY: By this function's requirements.
        let (dev, bytes) = unsafe {
            (
                Device::<T>::from_raw(dev),
                core::slice::from_raw_parts_mut(page.cast::<u8>(), PAGE_SIZE),
            )
        };
        let mut page = Page { bytes, used: 0 };
        T::show(dev, id as usize, &mut page)?;
        Ok(page.used as c_int)
    })
}

/// # Safety
///
/// As [`show`], in a system call that does not hold RTNL, with the `len` bytes written.
pub(crate) unsafe extern "C" fn store<T: Files>(
    dev: *mut bindings::net_device,
    id: c_uint,
    text: *const c_char,
    len: usize,
) -> c_int {
    from_result(|| {
        // SAFETY: By this function's requirements.
        let (dev, text) = unsafe {
            (
                Device::<T>::from_raw(dev),
                core::slice::from_raw_parts(text.cast::<u8>(), len),
            )
        };
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        // Waiting for RTNL would be waiting for one who may wait for us, to remove the file.
        let mut rtnl = Rtnl::try_lock().ok_or_else(retry)?;
        if !dev.is_registered(&mut rtnl) {
            return Err(ENODEV);
        }
        T::store(dev, id as usize, text, &mut rtnl)?;
        Ok(0)
    })
}
