// SPDX-License-Identifier: GPL-2.0

//! The transmit lock is released on the CPU that took it, where softirqs are off.

use ipoib_netdev::device::Driver;
use ipoib_netdev::queue::TxGuard;

fn send<T: Send>(_: T) {}

fn hold<T: Driver>(guard: TxGuard<'_, T>) {
    #[cfg(misuse)]
    send(guard); //~ E0277
    #[cfg(not(misuse))]
    drop(guard);
}
