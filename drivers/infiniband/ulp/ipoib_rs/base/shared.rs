// SPDX-License-Identifier: GPL-2.0

//! State shared by the ports of an RDMA device.

use ipoib_proto::vectors::Vectors;
use ipoib_rdma::device::NAME_LEN;
use ipoib_rdma::{Device, SaClient};
use kernel::new_spinlock;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{Arc, SpinLock};

/// Kept from when the device comes until the last interface on it is gone.
#[pin_data]
pub(crate) struct Shared {
    /// The device's name, as the RDMA core told it last.
    #[pin]
    name: SpinLock<Name>,
    /// How many interfaces have got vectors.
    served: Atomic<u32>,
    /// Asks the administrators of InfiniBand subnets.
    sa: Arc<SaClient>,
}

struct Name {
    bytes: [u8; NAME_LEN],
    len: usize,
}

impl Name {
    fn new(name: &CStr) -> Self {
        let mut bytes = [0; NAME_LEN];
        let mut len = 0;
        for (to, from) in bytes.iter_mut().zip(name.to_bytes()) {
            *to = *from;
            len += 1;
        }
        Self { bytes, len }
    }
}

impl Shared {
    /// For a device of that name.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: &CStr) -> Result<Arc<Self>> {
        let sa = SaClient::new()?;
        Arc::pin_init(
            pin_init!(Self {
                name <- new_spinlock!(Name::new(name)),
                served: Atomic::new(0),
                sa,
            }),
            GFP_KERNEL,
        )
    }

    /// The user of subnet administrators.
    pub(crate) fn sa(&self) -> &Arc<SaClient> {
        &self.sa
    }

    /// The device has another name.
    pub(crate) fn renamed(&self, name: &CStr) {
        *self.name.lock() = Name::new(name);
    }

    /// The completion vectors of another interface, of which `device` has some.
    pub(crate) fn next_vectors(&self, device: &Device) -> Vectors {
        Vectors::new(
            self.served.fetch_add(1, Relaxed),
            device.completion_vectors(),
        )
    }

    /// Returns true if the device is called `name`.
    pub(crate) fn is_called(&self, name: &CStr) -> bool {
        self.with_name(|own| own == name.to_bytes())
    }

    /// Calls `f` with the device's name, and returns what it does.
    ///
    /// # Context
    ///
    /// Process context. `f` must not sleep.
    pub(crate) fn with_name<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let name = self.name.lock();
        f(name.bytes.get(..name.len).unwrap_or(&[]))
    }
}
