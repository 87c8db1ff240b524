// SPDX-License-Identifier: GPL-2.0

//! Variables of a device under `/proc/sys/net`.
//!
//! C headers: [`include/linux/sysctl.h`](srctree/include/linux/sysctl.h).

use ipoib_sys::bindings;
use kernel::error::{from_result, to_result};
use kernel::ffi::{c_int, c_void};
use kernel::prelude::*;
use kernel::str::CStr;

use crate::device::{Device, Driver};
use crate::joined::Joined;
use crate::rtnl::{retry, Rtnl};

/// A whole number that can be read and written.
pub struct Variable {
    /// Its name.
    pub name: &'static CStr,
    /// The smallest value that is accepted.
    pub min: u32,
    /// The largest value that is accepted.
    pub max: u32,
}

impl Variable {
    /// Has the kernel read or write `value`, within the bounds.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no number, or out of bounds.
    ///
    /// # Safety
    ///
    /// All but `value` must be as a handler of a variable gets it.
    unsafe fn transfer(&self, value: &mut u32, write: c_int, user: User) -> Result {
        let (mut min, mut max) = (self.min, self.max);
        let entry = bindings::ctl_table {
            data: core::ptr::from_mut(value).cast(),
            maxlen: core::mem::size_of::<u32>() as c_int,
            extra1: (&raw mut min).cast(),
            extra2: (&raw mut max).cast(),
            ..pin_init::zeroed()
        };
        let User { buffer, len, pos } = user;
        // SAFETY: The entry describes `value` and its bounds; the rest is passed on, by this function's requirements.
        let result = unsafe { bindings::proc_douintvec_minmax(&entry, write, buffer, len, pos) };
        // As most sysctls do, and unlike the function's other users.
        to_result(result).map_err(|error| if error == ERANGE { EINVAL } else { error })
    }

    /// Returns what the variable is after `value` was written to it, for tests.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is out of bounds.
    #[cfg(CONFIG_KUNIT = "y")]
    pub fn written(&self, value: i64) -> Result<u32> {
        let text = kernel::str::CString::try_from_fmt(fmt!("{value}\n"))?;
        let (mut is, mut len, mut pos) = (self.min, text.to_bytes().len(), 0);
        let user = User {
            buffer: text.as_char_ptr().cast_mut().cast(),
            len: &raw mut len,
            pos: &raw mut pos,
        };
        // SAFETY: The buffer has a text of that length, which is only read.
        unsafe { self.transfer(&mut is, 1, user)? };
        Ok(is)
    }
}

/// Text that user space reads or writes.
struct User {
    buffer: *mut c_void,
    len: *mut usize,
    pos: *mut bindings::loff_t,
}

/// A driver whose devices have variables.
pub trait Tunable: Driver {
    /// The directory under `/proc/sys/net` in which each device has one of its own.
    const DIRECTORY: &'static CStr;

    /// The variables.
    const VARIABLES: &'static [Variable];

    /// The value of variable `id`, an index of [`Tunable::VARIABLES`].
    ///
    /// # Context
    ///
    /// Process context, without any lock.
    fn get(dev: &Device<Self>, id: usize) -> u32;

    /// Sets variable `id` to a value within its bounds. The device cannot be unregistered meanwhile.
    ///
    /// # Errors
    ///
    /// Whatever forbids the value; nothing has changed then.
    fn set(dev: &Device<Self>, id: usize, value: u32, rtnl: &mut Rtnl) -> Result;
}

/// The directory of a device in its network namespace; dropping it removes it.
///
/// # Invariants
///
/// `header` is the registration of `entries`, whose `data` is a device of the driver whose handler
/// they have, and which is registered for as long as this value lives.
pub(crate) struct Directory {
    header: *mut bindings::ctl_table_header,
    _entries: KVec<bindings::ctl_table>,
}

impl Directory {
    /// Makes the directory of `dev`, under its present name in its present namespace.
    ///
    /// # Safety
    ///
    /// The result must be dropped before the device is unregistered or moves to another namespace.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if there is such a directory already.
    ///
    /// # Context
    ///
    /// Process context under RTNL.
    pub(crate) unsafe fn new<T: Tunable>(dev: &Device<T>) -> Result<Self> {
        // SAFETY: RTNL keeps the name, which is a string, as it is.
        let name = unsafe { CStr::from_char_ptr((*dev.as_raw()).name.as_ptr()) };
        let path = Joined::new(&[c"net/", T::DIRECTORY, c"/", name])?;
        let mut entries = KVec::with_capacity(T::VARIABLES.len(), GFP_KERNEL)?;
        for (id, variable) in T::VARIABLES.iter().enumerate() {
            let entry = bindings::ctl_table {
                procname: variable.name.as_char_ptr(),
                data: dev.as_raw().cast(),
                maxlen: core::mem::size_of::<u32>() as c_int,
                mode: 0o644,
                proc_handler: Some(handle::<T>),
                extra1: core::ptr::without_provenance_mut(id),
                ..pin_init::zeroed()
            };
            entries.push(entry, GFP_KERNEL)?;
        }
        // SAFETY: The path is copied; the entries stay where they are until `Drop`.
        let header = unsafe {
            bindings::register_net_sysctl_sz(
                bindings::ipoib_rs_netdev_net(dev.as_raw()),
                path.as_c_str().as_char_ptr(),
                entries.as_ptr(),
                entries.len(),
            )
        };
        if header.is_null() {
            return Err(ENOMEM);
        }
        // INVARIANT: Just registered; the device lives for as long by the requirements.
        Ok(Self {
            header,
            _entries: entries,
        })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: Registered by the type invariant. This waits for handlers that run; none of them
        // waits for RTNL, which our caller holds.
        unsafe { bindings::unregister_net_sysctl_table(self.header) };
    }
}

/// # Safety
///
/// Called for an entry of a [`Directory`] of a device of `T`'s.
unsafe extern "C" fn handle<T: Tunable>(
    entry: *const bindings::ctl_table,
    write: c_int,
    buffer: *mut c_void,
    len: *mut usize,
    pos: *mut bindings::loff_t,
) -> c_int {
    from_result(|| {
        // SAFETY: The entry is one of ours, whose device is alive.
        let (dev, id) = unsafe {
            (
                Device::<T>::from_raw((*entry).data.cast()),
                (*entry).extra1.addr(),
            )
        };
        let variable = T::VARIABLES.get(id).ok_or(EINVAL)?;
        let mut value = T::get(dev, id);
        let before = value;
        let user = User { buffer, len, pos };
        // SAFETY: This is such a handler.
        unsafe { variable.transfer(&mut value, write, user)? };
        if write != 0 && value != before {
            // Waiting for RTNL would be waiting for one who may wait for us in `Directory::drop`.
            let mut rtnl = Rtnl::try_lock().ok_or_else(retry)?;
            T::set(dev, id, value, &mut rtnl)?;
        }
        Ok(0)
    })
}
