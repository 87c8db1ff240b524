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
        // A loop: the name of a chain of iterators is too long for objtool.
        let mut best = None;
        for dev in ports::interfaces_on(&self.device, &mut rtnl) {
            let reason = match dev.lock_tx().as_mut() {
                Some(tx) => tx.reason_to_give(&need, now),
                None => None,
            };
            let Some(reason) = reason else {
                continue;
            };
            if best.is_none_or(|(strongest, _)| reason >= strongest) {
                best = Some((reason, dev));
            }
        }
        if let Some((_, dev)) = best {
            if let Some(tx) = dev.lock_tx().as_mut() {
                tx.give(dev, &need, now);
            }
        }
    }
}
