// SPDX-License-Identifier: GPL-2.0

//! Sending by connections, with its accounting.

use ipoib_netdev::device::{Device, RawDevice};
use ipoib_netdev::skb::TxSkb;
use ipoib_proto::drop::DropReason;
use ipoib_proto::header::Header;
use ipoib_proto::rc;
use ipoib_rdma::RcSender;
use kernel::prelude::*;
use kernel::sync::atomic::Full;
use kernel::sync::barrier::smp_mb;
use kernel::sync::Arc;

use crate::base::counters::{ConnectedTx, Counters};
use crate::base::interface::Interface;
use crate::rc::channel::Channel;
use crate::rc::conn::Conn;
use crate::rc::shared::Shared;
use crate::ud::ring::refusal;

/// The producing half of the rings that connections send by, with its accounting.
pub(crate) struct RcRing {
    pub(crate) sender: RcSender,
    /// Notes to the NAPIs.
    pub(crate) shared: Arc<Shared>,
    counters: Arc<Counters>,
}

impl RcRing {
    /// Creates the ring.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(sender: RcSender, counters: Arc<Counters>) -> Result<Self> {
        Ok(Self {
            sender,
            shared: Arc::new(Shared::new(), GFP_KERNEL)?,
            counters,
        })
    }

    pub(super) fn counters(&self) -> &ConnectedTx {
        &self.counters.rc_tx
    }

    /// Returns true if one more message can go by a channel.
    #[inline(always)]
    pub(crate) fn has_room(&mut self, channel: &Channel) -> bool {
        match channel.machine.present() {
            Some(rc) => channel.may_send(rc) && self.sender.has_room(&rc.lane),
            None => false,
        }
    }

    /// Returns true if a frame can go by a channel at once.
    #[inline(always)]
    pub(crate) fn is_free(&mut self, channel: &Channel) -> bool {
        channel.backlog.is_empty() && self.has_room(channel)
    }

    /// Puts a frame with its headers on the ring. True: the stack hands over no other at once.
    ///
    /// # Errors
    ///
    /// The frame, and why it is dropped.
    #[inline(always)]
    pub(super) fn post(
        &mut self,
        dev: &Device<Interface>,
        rc: &Conn,
        skb: TxSkb,
    ) -> Result<bool, (TxSkb, DropReason)> {
        let len = skb.len() as u32;
        if let Err((skb, error)) = self.sender.post(skb, &rc.lane) {
            return Err((skb, refusal(error)));
        }
        let bytes = u64::from(len.wrapping_sub(Header::LEN as u32));
        rc.flow.sent.frames.add(1);
        rc.flow.sent.bytes.add(bytes);
        Ok(!dev.more_follows())
    }

    /// Returns true if one more message can go by a channel. If not, the NAPIs are told that a frame waits for that.
    pub(crate) fn room_or_wait(&mut self, channel: &Channel) -> bool {
        if self.has_room(channel) {
            return true;
        }
        self.shared.begin_stall();
        // Pairs with the barriers in the NAPIs: either they see that a frame waits, or we see what they
        // have brought.
        smp_mb(Full);
        self.has_room(channel)
    }

    /// Advertises the credit limit of a connection that a peer sends by, if that is due.
    ///
    /// # Errors
    ///
    /// `EBUSY` if as many are in flight as its queue pair takes; `ENOMEM` and those of the device. The limit stays due, and
    /// the caller has to try again.
    pub(crate) fn grant(&mut self, rc: &Conn) -> Result {
        let width = rc.window.width;
        if !rc.flow.is_due(width) {
            return Ok(());
        }
        if !self.sender.has_room(&rc.lane) {
            return Err(EBUSY);
        }
        let limit = rc.flow.advertise(width);
        let skb = TxSkb::new(&rc::credit_only(limit));
        let posted = skb.and_then(|skb| {
            let posted = self.sender.post(skb, &rc.lane);
            posted.map_err(|(_, error)| error)
        });
        match posted {
            Ok(()) => self.counters().grants.add(1),
            Err(_) => rc.flow.readvertise(),
        }
        posted
    }

    /// Drops what the device does not have yet, as the interface goes down.
    pub(super) fn close(&mut self, dev: &RawDevice) {
        let frames = u64::from(self.sender.clear());
        self.counters.dropped(dev, DropReason::Flushed, frames, 0);
    }

    /// Hands a full chain to the device; what that refuses is for [`Self::flush`] to see.
    #[inline(never)]
    pub(super) fn make_room(&mut self) {
        self.ring_doorbell();
    }

    /// Hands what is on the ring to the device.
    // For nearly every frame; left to itself, the compiler calls it.
    #[inline(always)]
    fn ring_doorbell(&mut self) {
        if self.sender.flush() {
            self.counters.tx.doorbells.add(1);
        }
    }

    /// Hands what is on the ring to the device. True: that has refused frames of a connection, which the work item is to
    /// end.
    #[inline(always)]
    #[must_use]
    pub(crate) fn flush(&mut self, dev: &Device<Interface>) -> bool {
        self.ring_doorbell();
        match self.sender.take_refused() {
            Some(frames) => self.refused(dev, frames),
            None => false,
        }
    }

    /// Counts what the device has refused. Returns true.
    #[cold]
    #[inline(never)]
    fn refused(&self, dev: &Device<Interface>, frames: u32) -> bool {
        let frames = u64::from(frames);
        self.counters
            .dropped(dev, DropReason::PostFailed, frames, 0);
        true
    }
}
