// SPDX-License-Identifier: GPL-2.0

//! Devices tell of failures in hard interrupts, too, in which no code of a driver's runs.

use ipoib_netdev::device::{Device, Tasks};
use ipoib_rdma::{Alarm, FailureHandler};
use kernel::sync::atomic::Atomic;
use kernel::sync::Arc;

#[cfg(misuse)]
struct Own;

#[cfg(misuse)]
#[rustfmt::skip]
impl FailureHandler for Own { //~ E0277
    fn failed(&self, _what: &'static str) {}
}

fn is_told<F: FailureHandler>(_: F) {}

fn tell<T: Tasks>(dev: &Device<T>, failed: Arc<Atomic<bool>>) {
    is_told(Alarm::new(dev, 0, failed));
    is_told(());
}
