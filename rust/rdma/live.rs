// SPDX-License-Identifier: GPL-2.0

//! Tests on soft-RoCE. The names of their suites end in `_live`: the lab has a device for them, and takes one that is
//! skipped for a failure.

use core::ptr;

use ipoib_netdev::live::{skip, until, LIMIT_MS};
use ipoib_sys::bindings;
use kernel::alloc::flags::__GFP_ZERO;
use kernel::error::to_result;
use kernel::ffi::c_int;
use kernel::prelude::*;
use kernel::str::{CStr, CStrExt};
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::deferred::Reaper;
use crate::device::{Device, Ending};
use crate::gid::{GidAddress, GidRef};
use crate::pd::Pd;
use crate::sa::Notify;

mod connect;
mod frames;
mod rc;
mod ud;
mod verbs;

/// The one port of soft-RoCE.
const PORT: u32 = 1;
/// The full member of the default partition.
const PKEY: u16 = 0xffff;
/// The client of the tests.
const NAME: &CStr = c"ipoib_rs_kunit";

/// A port of soft-RoCE, and what all that a test makes is made of.
struct Live {
    gid: GidRef,
    pd: Arc<Pd>,
    device: Device,
    reaper: Reaper,
    ending: Ending,
}

/// Runs a test on soft-RoCE, or skips it where there is none. All that it has made has to end in time.
///
/// # Errors
///
/// Those of the test; `ETIMEDOUT`.
fn on_soft_roce(test: impl FnOnce(&Live) -> Result) -> Result {
    let Some(live) = Live::find()? else {
        skip(c"there is no soft-RoCE");
        return Ok(());
    };
    let result = test(&live);
    let Live {
        gid,
        pd,
        device,
        reaper,
        ending,
    } = live;
    drop((gid, pd));
    let ended = reaper.end_in(LIMIT_MS.into());
    drop(device);
    let gone = ending.wait_for(LIMIT_MS.into());
    if ended.and(gone).is_err() {
        pr_err!("the device is still used\n");
    }
    result.and(ended).and(gone)
}

impl Live {
    /// Finds a device, and waits until its port has a link-local GID that can be sent from.
    fn find() -> Result<Option<Self>> {
        let ending = Ending::new(NAME)?;
        let raw = find()?;
        if raw.is_null() {
            return Ok(None);
        }
        // SAFETY: There is a reference, which keeps it registered, and is given back.
        let device = unsafe {
            let device = Device::try_get(raw, &ending);
            bindings::ib_device_put(raw);
            device?
        };
        let mut found = None;
        until(|| {
            let mut gids = device.gids(PORT).filter(GidRef::is_rocev2);
            found = gids
                .find(|gid| gid.raw()[0] == 0xfe && gid.address() == GidAddress::Assigned)
                .filter(|_| device.query_port(PORT).is_ok_and(|port| port.active));
            found.is_some()
        })?;
        let reaper = Reaper::new()?;
        Ok(Some(Self {
            gid: found.ok_or(ENODEV)?,
            pd: Pd::new(&device, &reaper)?,
            device,
            reaper,
            ending,
        }))
    }
}

/// Returns true if a device is one of soft-RoCE.
pub fn is_soft_roce(device: &Device) -> bool {
    !device.sends_to_macs()
}

/// The device that was found, with a reference.
static FOUND: Atomic<*mut bindings::ib_device> = Atomic::new(ptr::null_mut());

/// Finds a device of soft-RoCE, with a reference; null if there is none.
fn find() -> Result<*mut bindings::ib_device> {
    FOUND.store(ptr::null_mut(), Relaxed);
    let mut client = KBox::<bindings::ib_client>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
    let client = client.as_mut_ptr();
    // SAFETY: It is ours and zeroed, as which it is plain data, and stays until it is unregistered.
    unsafe {
        (*client).name = NAME.as_char_ptr();
        (*client).add = Some(look);
        if let Err(error) = to_result(bindings::ib_register_client(client)) {
            let found = FOUND.xchg(ptr::null_mut(), Relaxed);
            if !found.is_null() {
                bindings::ib_device_put(found);
            }
            return Err(error);
        }
        bindings::ib_unregister_client(client);
    }
    Ok(FOUND.load(Relaxed))
}

/// # Safety
///
/// Called by the RDMA core with a device that is registered.
unsafe extern "C" fn look(device: *mut bindings::ib_device) -> c_int {
    // SAFETY: By this function's requirements; the driver's number is constant.
    let driver = unsafe { (*device).ops.driver_id };
    let is_wanted =
        FOUND.load(Relaxed).is_null() && driver == bindings::rdma_driver_id_RDMA_DRIVER_RXE;
    // SAFETY: By this function's requirements.
    if is_wanted && unsafe { bindings::ipoib_rs_ib_device_try_get(device) } {
        FOUND.store(device, Relaxed);
    }
    EOPNOTSUPP.to_errno()
}

/// Receiver of news that needs none.
struct Deaf;

impl Notify for Deaf {
    fn notify(&self) {}
}
