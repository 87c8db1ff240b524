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
    pub(crate) sa: Arc<SaClient>,
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

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(ipoib_rs_shared)]
mod tests {
    use super::*;
    use ipoib_netdev::task::{Queue, Run, Task};
    use kernel::time::{delay::fsleep, Delta};

    const SHORT: &CStr = c"x";
    /// As long as a name can be.
    const LONG: &CStr = c"a-name-of-63-bytes-01234567890123456789012345678901234567890123";

    /// A name is replaced by any other, whole, and one that is as long as they get fits.
    #[test]
    fn a_device_has_one_name() -> Result {
        assert_eq!(LONG.to_bytes().len(), NAME_LEN - 1);
        let shared = Shared::new(c"mlx5_0")?;
        assert!(shared.is_called(c"mlx5_0"));
        for name in [LONG, SHORT, c"", c"mlx5_1"] {
            shared.renamed(name);
            assert!(shared.is_called(name));
            assert!(!shared.is_called(c"mlx5_0"));
            assert_eq!(shared.with_name(<[u8]>::len), name.to_bytes().len());
        }
        Ok(())
    }

    /// Renames a device again and again, until it is stopped.
    struct Renames {
        shared: Arc<Shared>,
        rounds: Atomic<u32>,
        stopped: Atomic<bool>,
    }

    impl Run for Renames {
        fn run(&self, task: &Queue<'_>) {
            for _ in 0..1000 {
                self.shared.renamed(LONG);
                self.shared.renamed(SHORT);
            }
            self.rounds.fetch_add(1, Relaxed);
            if !self.stopped.load(Relaxed) {
                task.queue(0);
            }
        }
    }

    /// Readers see the old name or the new one while another CPU changes it, never a mix of both.
    #[test]
    fn a_name_changes_at_once() -> Result {
        let shared = Shared::new(SHORT)?;
        let task = Task::new(Renames {
            shared: shared.clone(),
            rounds: Atomic::new(0),
            stopped: Atomic::new(false),
        })?;
        task.queue(0);
        let mut torn = 0;
        for _ in 0..50 {
            for _ in 0..2000 {
                let is_whole = |name: &[u8]| name == LONG.to_bytes() || name == SHORT.to_bytes();
                torn += u32::from(!shared.with_name(is_whole));
            }
            // With one CPU, it is the other one's turn.
            fsleep(Delta::from_micros(100));
        }
        task.stopped.store(true, Relaxed);
        assert_eq!(torn, 0);
        assert!(task.rounds.load(Relaxed) > 0);
        Ok(())
    }
}
