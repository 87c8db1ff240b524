// SPDX-License-Identifier: GPL-2.0

//! Queues of connected mode: the intake of messages and the CQs that all connections share.

use ipoib_netdev::device::Device;
use ipoib_netdev::netdev_log;
use ipoib_proto::admission::MAX_SENDERS;
use ipoib_proto::credit::RESERVE;
use ipoib_rdma::{rc_sends, Cq, Intake, IntakeRing, Listener, MessagePool, QpCaps, RcInit, RcQp};
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::params;
use crate::base::settings::MAX_CONNECTIONS;
use crate::ctl::connect::{self, ConnListener};
use crate::ctl::verbs::{Running, Verbs};
use crate::data::completions::RcDone;
use crate::rc::conn::SENDS;
use crate::rc::context::{RcContext, MAX_MESSAGE};
use crate::rc::ring::RcRing;
use crate::rc::rx::RcRx;
use crate::rc::shared::Shared;
use crate::rc::table::{Connections, MOST};
use crate::rc::tx::RcTx;

/// Room for completions of what is sent by as many connections as there may be in channels, by as many that are ending, and
/// by all that others send by. If more are ending, the next connection has to wait for them.
const MOST_SENDS: u32 = 2 * MAX_CONNECTIONS as u32 * SENDS + MAX_SENDERS as u32 * RESERVE as u32;

/// Queues of an interface in connected mode, until each is where it belongs.
pub(super) struct Parts {
    pub(super) rc_context: Arc<RcContext>,
    pub(super) tx: Option<RcTx>,
    pub(super) rx: Option<KBox<RcRx>>,
    pub(super) done: Option<RcDone>,
}

impl Verbs {
    /// Creates the intake of connections, a shared receive queue if the device has one for us, and a pool of
    /// buffers for it.
    fn intake(&self, dev: &Device<Interface>) -> Result<(Arc<Intake>, MessagePool)> {
        // The old rings may be the last that the device has, and two generations are a lot of memory.
        dev.data().reaper.flush();
        let device = self.pd.device();
        let message = MAX_MESSAGE as usize;
        let wanted = params::rc_recv_queue_size();
        let shared = || -> Result<_> {
            if device.max_srq() == 0 {
                return Err(EOPNOTSUPP);
            }
            let buffers = wanted.min(device.max_srq_wr());
            let sges = device.max_srq_sge() as usize;
            let pool = MessagePool::new(device, message, sges, buffers as usize)?;
            let alarm = Interface::alarm(dev);
            let intake = Intake::shared(&self.pd, buffers, pool.parts() as u32, alarm)?;
            Ok((intake, pool))
        };
        let error = match shared() {
            Ok(made) => return Ok(made),
            Err(error) => error,
        };
        netdev_log!(
            dev,
            Info,
            limited,
            "no shared receive queue ({error:?}): each connection has buffers of its own\n"
        );
        let sges = device.max_recv_sge() as usize;
        let pool = MessagePool::new(device, message, sges, wanted as usize)?;
        let intake = Intake::separate(&self.pd, wanted, pool.parts() as u32)?;
        Ok((intake, pool))
    }

    /// Checks that there can be connections, by making what they need.
    ///
    /// # Errors
    ///
    /// Those of the device; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Under RTNL; sleeps.
    #[inline(never)]
    pub(super) fn try_connected(&self, dev: &Device<Interface>) -> Result {
        let (intake, pool) = self.intake(dev)?;
        let buffers = intake.max_wr();
        let recv_cq = Self::receive_cq(dev, &self.rx, buffers, self.vectors)?;
        let send_cq = self.connections_cq(dev)?;
        let caps = QpCaps {
            send_wr: SENDS.min(dev.data().settings.queue_limits().send),
            recv_wr: RESERVE.into(),
            send_sge: self.max_sge,
            recv_sge: pool.parts() as u32,
        };
        let init = RcInit {
            pd: &self.pd,
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            intake: &intake,
            caps,
        };
        RcQp::new(init)?;
        Ok(())
    }

    /// Makes the completion queue of what connections send. If the device has none for as many, there are fewer connections.
    fn connections_cq(&self, dev: &Device<Interface>) -> Result<Arc<Cq>> {
        let entries = MOST_SENDS.min(self.pd.device().max_cqe());
        Self::send_cq(dev, &self.tx, entries, self.vectors)
    }

    /// Makes what connections need.
    #[inline(never)]
    pub(super) fn connected(
        &self,
        dev: &Device<Interface>,
        running: &Running,
    ) -> Result<KBox<Parts>> {
        let (intake, pool) = self.intake(dev)?;
        let buffers = intake.max_wr();
        let recv_cq = Self::receive_cq(dev, &self.rx, buffers, self.vectors)?;
        let send_cq = self.connections_cq(dev)?;
        let parts = Parts {
            rc_context: self.rc_context(dev, running, intake, send_cq, recv_cq)?,
            rx: None,
            done: None,
            tx: None,
        };
        let mut parts = KBox::new(parts, GFP_KERNEL)?;
        let shared = self.add_sends(dev, &mut parts)?;
        Self::add_receives(dev, &mut parts, pool, shared)?;
        Ok(parts)
    }

    /// Makes the table of connections, and both halves of what they send by.
    #[inline(never)]
    fn add_sends(&self, dev: &Device<Interface>, parts: &mut Parts) -> Result<Arc<Shared>> {
        let this = dev.data().get_ref();
        let rc_context = &parts.rc_context;
        let send_cq = &rc_context.send_cq;
        let (sender, completions) = rc_sends(&self.pd, send_cq, self.max_sge, MOST)?;
        let buffers = rc_context.intake.max_wr();
        let counters = &this.counters;
        let connections = Connections::new(rc_context.clone(), counters.clone(), buffers)?;
        let ring = RcRing::new(sender, counters.clone())?;
        let shared = ring.shared.clone();
        parts.done = Some(RcDone {
            completions,
            shared: shared.clone(),
        });
        parts.tx = Some(RcTx { connections, ring });
        Ok(shared)
    }

    /// Makes the receive ring, and fills it.
    #[inline(never)]
    fn add_receives(
        dev: &Device<Interface>,
        parts: &mut Parts,
        pool: MessagePool,
        shared: Arc<Shared>,
    ) -> Result {
        let RcContext {
            intake, recv_cq, ..
        } = &*parts.rc_context;
        let mut ring = IntakeRing::new(intake, recv_cq, pool, intake.max_wr())?;
        ring.fill()?;
        let counters = dev.data().get_ref().counters.clone();
        parts.rx = Some(RcRx::new(ring, shared, counters)?);
        Ok(())
    }

    /// Makes what connections have in common.
    #[inline(never)]
    fn rc_context(
        &self,
        dev: &Device<Interface>,
        running: &Running,
        intake: Arc<Intake>,
        send_cq: Arc<Cq>,
        recv_cq: Arc<Cq>,
    ) -> Result<Arc<RcContext>> {
        let this = dev.data().get_ref();
        let rc_context = RcContext {
            pd: self.pd.clone(),
            intake,
            send_cq,
            recv_cq,
            max_sge: self.max_sge,
            settings: this.settings.clone(),
            gid: running.gid,
            qpn: self.qpn,
            pkey: running.pkey,
            ib_mtu: running.ib_mtu,
        };
        Ok(Arc::new(rc_context, GFP_KERNEL)?)
    }

    /// Answers requests for connections from now on.
    pub(super) fn listen(
        &mut self,
        dev: &Device<Interface>,
        rc_context: &Arc<RcContext>,
    ) -> Result {
        for service in connect::services(rc_context) {
            let conn_listener = Arc::new(
                ConnListener {
                    dev: dev.get_typed(),
                    rc_context: rc_context.clone(),
                    port: dev.data().port.number(),
                },
                GFP_KERNEL,
            )?;
            let listener = Listener::new(&self.pd, service, conn_listener)?;
            self.listeners.push(listener, GFP_KERNEL)?;
        }
        Ok(())
    }
}
