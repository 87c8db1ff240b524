// SPDX-License-Identifier: GPL-2.0

//! Only who holds RTNL has its token.

use core::marker::PhantomData;

use ipoib_netdev::rtnl::Rtnl;

fn token(_: &mut Rtnl) {}

fn hold() {
    let _not_send = PhantomData::<*mut ()>;
    #[cfg(misuse)]
    let mut held = Rtnl { _not_send }; //~ E0451
    #[cfg(not(misuse))]
    let mut held = Rtnl::lock();
    token(&mut held);
}
