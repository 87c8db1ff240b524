// SPDX-License-Identifier: GPL-2.0

//! Names of network devices.

use ipoib_sys::bindings;

/// A network namespace, which need not exist any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Netns(pub(crate) u64);

impl Netns {
    /// The network namespace of the current task.
    ///
    /// # Context
    ///
    /// Process context.
    pub fn current() -> Self {
        // SAFETY: The current task has namespaces, as it is not exiting.
        Self(unsafe { bindings::rdma_provider_netns() })
    }
}

/// A network device by its name.
#[derive(Clone, Copy, Debug)]
pub struct NetdevName {
    /// The name, with a zero behind it.
    pub name: [u8; 16],
    /// The network namespace in which it has that name.
    pub netns: Netns,
}
