// SPDX-License-Identifier: GPL-2.0

//! Devices tell of completions in hard interrupts, in which no code of a driver's runs: it might drop a buffer there.

use ipoib_netdev::napi::{Handle, Poll};
use ipoib_rdma::{CompletionHandler, Cq, Device, FailureHandler};
use kernel::prelude::*;
use kernel::sync::Arc;

#[cfg(misuse)]
struct Own;

#[cfg(misuse)]
#[rustfmt::skip]
impl CompletionHandler for Own { //~ E0277
    fn completion(&self) {}
}

fn wake<P: Poll, F: FailureHandler>(dev: &Device, napi: Handle<P>, failure: F) -> Result<Arc<Cq>> {
    Cq::new(dev, 1, 0, napi, failure)
}

fn tell_nobody<F: FailureHandler>(dev: &Device, failure: F) -> Result<Arc<Cq>> {
    Cq::new(dev, 1, 0, (), failure)
}

fn is_told<H: CompletionHandler>(_: H) {}

fn tell<P: Poll>(napi: Handle<P>) {
    is_told(napi);
    is_told(());
}
