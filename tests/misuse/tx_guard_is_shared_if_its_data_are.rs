// SPDX-License-Identifier: GPL-2.0

//! Data behind the transmit lock are read on several CPUs only if their type allows that.

use ipoib_netdev::device::Driver;
use ipoib_netdev::queue::TxGuard;

fn share<T: Sync>(_: &T) {}

fn read<T: Driver>(guard: &TxGuard<'_, T>) {
    #[cfg(misuse)]
    share(guard); //~ E0277
    #[cfg(not(misuse))]
    let _ = guard.is_some();
}

fn read_shared<T: Driver>(guard: &TxGuard<'_, T>)
where
    T::Tx: Sync,
{
    share(guard);
}
