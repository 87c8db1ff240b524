// SPDX-License-Identifier: GPL-2.0

//! End of the use of RDMA core's objects by others.

use ipoib_sys::bindings;

/// Waits until all sections that RCU protects, softirqs among them, have ended that have begun before this.
///
/// # Context
///
/// Process context; may sleep.
pub(crate) fn wait_for_readers() {
    // SAFETY: It may be called wherever it is allowed to sleep.
    unsafe { bindings::rdma_provider_wait_for_readers() };
}
