// SPDX-License-Identifier: GPL-2.0

//! The work item that makes room for a connection where a device has no more: it looks at one interface after
//! the other, never with two transmit locks held, and has one of them end the connection that is the least
//! recently used (`proto/flow/share.rs` says which).

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_netdev::task::{Queue, Run};

use crate::base::quota::MakeRoom;
use crate::ctl::ports;

impl Run for MakeRoom {
    fn run(&self, _task: &Queue<'_>) {
        let now = now_ms();
        let Some(need) = self.need(now) else {
            return;
        };
        let mut rtnl = Rtnl::lock();
        let candidates = ports::interfaces_on(&self.device, &mut rtnl).filter_map(|dev| {
            let reason = dev.lock_tx().as_mut()?.reason_to_give(&need, now)?;
            Some((reason, dev))
        });
        if let Some((_, dev)) = candidates.max_by_key(|(reason, _)| *reason) {
            if let Some(tx) = dev.lock_tx().as_mut() {
                tx.give(dev, &need, now);
            }
        }
    }
}
