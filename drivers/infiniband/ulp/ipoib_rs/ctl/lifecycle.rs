// SPDX-License-Identifier: GPL-2.0

//! The rings of an interface while it is up: how they are made, resized and taken down.

use ipoib_netdev::clock::now_ms;
use ipoib_netdev::device::Device;
use ipoib_netdev::netdev_log;
use ipoib_proto::extended::MAX_DATAGRAMS;
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::{Flags, HwAddr};
use ipoib_proto::rx::{Local, GRH_LEN};
use ipoib_proto::sizes::Sizes;
use ipoib_proto::thresholds::Thresholds;
use ipoib_rdma::{random_psn, send_ring, AhOptions, QpState, SendCompletions, UdQp};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::order::Order;
use crate::base::port::Attributes;
use crate::base::work::Work;
use crate::ctl::connected::Parts;
use crate::ctl::subnet::Waker;
use crate::ctl::verbs::{Running, Verbs};
use crate::data::completions::TxPoll;
use crate::data::events::Events;
use crate::data::rx::{RecvRing, RxPoll};
use crate::data::tx::Tx;
use crate::rc::tx::RcTx;
use crate::ud::endpoint::Endpoint;
use crate::ud::paths::Destinations;
use crate::ud::ring::UdRing;
use crate::ud::tx::UdTx;

impl Verbs {
    /// Brings the QP up, with its rings, and returns the GID that it sends from.
    ///
    /// # Errors
    ///
    /// Those of the device; everything is as before then.
    ///
    /// # Context
    ///
    /// Under RTNL; sleeps.
    pub(crate) fn start(
        &mut self,
        dev: &Device<Interface>,
        attributes: &Attributes,
    ) -> Result<Gid> {
        self.try_start(dev, attributes)
            .inspect_err(|_| self.stop(dev))
    }

    fn try_start(&mut self, dev: &Device<Interface>, attributes: &Attributes) -> Result<Gid> {
        let this = dev.data().get_ref();
        let gid = this.gid(attributes.gid)?;
        let our_gid = Gid(gid.raw());
        // Its Ethernet address may be another one since.
        gid.advertise();
        let member = this.port.gid(0, attributes.gid)?;
        let pkey = this.pkey();
        let pkey_index = this.port.find_pkey(pkey)?;
        let mut destinations = Destinations::new(dev, this.port.is_infiniband())?;
        destinations.set_up(attributes.active, now_ms());
        destinations.want(this.groups.lock().wanted());
        let endpoint = Arc::new(
            Endpoint {
                qp: self.initialise(dev, pkey_index)?,
                port: this.port.clone(),
                pd: self.pd.clone(),
                gid,
                member,
                address: HwAddr::new(Flags::NONE, self.qpn, our_gid),
                options: AhOptions {
                    traffic_class: this.settings.traffic_class(),
                    sl: this.settings.service_level(),
                    ..AhOptions::default()
                },
                notify: Arc::new(Waker(dev.get_typed()), GFP_KERNEL)?,
            },
            GFP_KERNEL,
        )?;
        let running = Running {
            gid: our_gid,
            ib_mtu: attributes.ib_mtu,
            pkey,
            pkey_index,
            gid_missed: false,
        };
        self.run(dev, running, destinations, endpoint)?;
        Ok(our_gid)
    }

    /// Makes the rings of the QP, which is in INIT, in the sizes that the settings say, and lets them run. What it makes is large: each
    /// step has a stack frame of its own, which is gone when the next one calls the device.
    fn run(
        &mut self,
        dev: &Device<Interface>,
        running: Running,
        destinations: Destinations,
        endpoint: Arc<Endpoint>,
    ) -> Result {
        let this = dev.data().get_ref();
        let Sizes {
            receive: buffers,
            send: sends,
        } = this.settings.queue_sizes();
        let qp = endpoint.qp.clone();
        let capacity = running.ib_mtu.saturating_add(GRH_LEN as u32);
        let mut recv = RecvRing::new(&qp, capacity as usize, buffers)?;
        // Posted before the QP can receive, so that nothing is lost.
        recv.fill()?;
        qp.start(random_psn())?;
        let mut parts = if this.is_connected() {
            Some(self.connected(dev, &running)?)
        } else {
            None
        };
        let rc_context = parts.as_ref().map(|parts| parts.rc_context.clone());
        self.messages_cq = rc_context.as_ref().map(|context| context.recv_cq.clone());
        self.receive(dev, &running, &qp, recv, parts.as_deref_mut())?;
        let (ring, completions, thresholds) = self.send_ring(dev, &running, &qp, sends)?;
        self.complete(dev, &qp, completions, thresholds, parts.as_deref_mut())?;
        let rc = parts.and_then(|mut parts| parts.tx.take());
        self.send(dev, destinations, ring, endpoint, rc);
        self.running = Some(running);
        // Polls before this may have had no state, and armed nothing.
        self.rx.handle().schedule();
        self.tx.handle().schedule();
        if let Some(rc_context) = rc_context {
            self.listen(dev, &rc_context)?;
        }
        Ok(())
    }

    /// Lets the receive poll run.
    #[inline(never)]
    fn receive(
        &mut self,
        dev: &Device<Interface>,
        running: &Running,
        qp: &UdQp,
        ring: RecvRing,
        parts: Option<&mut Parts>,
    ) -> Result {
        let this = dev.data().get_ref();
        let local = Local {
            gid: running.gid,
            qpn: self.qpn,
            broadcast: this.broadcast(),
        };
        let cq = parts.as_ref().map(|parts| parts.rc_context.recv_cq.clone());
        self.rx.enable(
            RxPoll::new(
                ring,
                parts.and_then(|parts| parts.rx.take()),
                local,
                Order::new(this.settings.clone())?,
                dev.get_typed(),
            ),
            Events {
                datagrams: qp.recv_cq().clone(),
                connections: cq,
                dev: dev.get_typed(),
            },
        )
    }

    /// Lets the poll of completions run.
    fn complete(
        &mut self,
        dev: &Device<Interface>,
        qp: &UdQp,
        completions: SendCompletions,
        thresholds: Thresholds,
        parts: Option<&mut Parts>,
    ) -> Result {
        let cq = parts.as_ref().map(|parts| parts.rc_context.send_cq.clone());
        self.tx.enable(
            TxPoll::new(
                completions,
                parts.and_then(|parts| parts.done.take()),
                thresholds,
                dev.data().get_ref().counters.clone(),
                dev.get_typed(),
            ),
            Events {
                datagrams: qp.send_cq().clone(),
                connections: cq,
                dev: dev.get_typed(),
            },
        )
    }

    /// Makes the ring of datagrams, and the side that completes them.
    #[inline(never)]
    fn send_ring(
        &self,
        dev: &Device<Interface>,
        running: &Running,
        qp: &Arc<UdQp>,
        sends: u32,
    ) -> Result<(UdRing, SendCompletions, Thresholds)> {
        let this = dev.data().get_ref();
        let (sender, completions) = send_ring(qp, sends, self.max_sge, this.qkey().0)?;
        // A frame for a peer or a group without a connection may go in segments.
        let most = if this.is_connected() {
            (MAX_DATAGRAMS as u32).min(sends / 2)
        } else {
            1
        };
        let thresholds = Thresholds::new(sends, most).ok_or(EINVAL)?;
        let mtu = dev.mtu().min(this.datagram_mtu(running.ib_mtu));
        let ring = UdRing::new(dev, sender, thresholds, mtu, self.tx.handle().waker());
        Ok((ring, completions, thresholds))
    }

    /// Lets the stack send.
    #[inline(never)]
    fn send(
        &self,
        dev: &Device<Interface>,
        destinations: Destinations,
        ring: UdRing,
        endpoint: Arc<Endpoint>,
        rc: Option<RcTx>,
    ) {
        let mut ud = UdTx { destinations, ring };
        // Paths may be known from before.
        ud.set_narrowest();
        *dev.lock_tx() = Some(Tx {
            ud,
            rc,
            endpoint,
            rx: self.rx.handle(),
            completions: self.tx.handle(),
        });
    }

    /// Makes new rings in the sizes that the settings say, and leaves all else as it is: the QP
    /// keeps its number, and the interface its carrier, its paths and its groups. The caller starts the queue, and then
    /// the work item that resolves paths.
    ///
    /// # Errors
    ///
    /// Those of the device, and `ENOMEM`; nothing runs then.
    ///
    /// # Context
    ///
    /// Under RTNL, with the transmit queue disabled; sleeps.
    #[inline(never)]
    pub(crate) fn resize(&mut self, dev: &Device<Interface>) -> Result {
        let Some(running) = self.running else {
            return Ok(());
        };
        // Only a restart makes the queues anew.
        let broken = &dev.data().get_ref().broken;
        if broken.load(Relaxed) {
            return Err(EIO);
        }
        let pausing = &dev.data().get_ref().pausing;
        self.listeners.clear();
        pausing.store(true, Relaxed);
        // It may be waiting for completions.
        Interface::cancel(dev, Work::Connections);
        // Its completions would start the queue again.
        let mut completions = self.tx.disable();
        // A job that is under way would find nobody to bring its answer to; none begins now.
        Interface::cancel(dev, Work::Paths);
        Interface::cancel(dev, Work::Recover);
        Interface::cancel(dev, Work::Watch);
        // The work item may have started the queue once more before it ended. The receive poll still runs and may start it
        // too, so stop the queue and take `tx` under one lock.
        let mut tx = {
            let mut guard = dev.lock_tx();
            dev.stop_queue();
            guard.take()
        };
        pausing.store(false, Relaxed);
        self.halt(dev, tx.as_mut(), &mut completions);
        self.run_again(dev, running, &mut tx)?;
        if broken.load(Relaxed) {
            // It broke meanwhile, and `halt` has forgotten the restart that was asked for.
            Interface::restart_soon(dev);
        }
        Ok(())
    }

    /// Makes new rings for a QP that has been reset, with what was kept of `tx`.
    #[inline(never)]
    fn run_again(
        &mut self,
        dev: &Device<Interface>,
        running: Running,
        tx: &mut Option<Tx>,
    ) -> Result {
        let Some(Tx {
            ud: UdTx { destinations, ring },
            endpoint,
            ..
        }) = tx.take()
        else {
            return Err(ENODEV);
        };
        drop(ring);
        let qkey = dev.data().qkey().0;
        endpoint.qp.to_init(running.pkey_index, qkey)?;
        self.run(dev, running, destinations, endpoint)
    }

    /// Takes the rings down: first nobody sends, then nothing completes, then all is freed.
    ///
    /// # Context
    ///
    /// Under RTNL, with the transmit queue disabled; sleeps.
    pub(crate) fn stop(&mut self, dev: &Device<Interface>) {
        self.listeners.clear();
        let mut tx = dev.lock_tx().take();
        Interface::cancel(dev, Work::Paths);
        Interface::cancel(dev, Work::Recover);
        Interface::cancel(dev, Work::Watch);
        Interface::cancel(dev, Work::Connections);
        let this = dev.data().get_ref();
        this.subnet.lock().cancel_all();
        this.groups.lock().leave_all();
        let mut completions = self.tx.disable();
        // Completions may have started the queue meanwhile, and who starts it next is to wake who waits.
        dev.disable_queue();
        self.halt(dev, tx.as_mut(), &mut completions);
    }

    /// Ends the receive poll, after the other one, resets the QP and frees what the rings hold.
    #[inline(never)]
    fn halt(
        &mut self,
        dev: &Device<Interface>,
        mut tx: Option<&mut Tx>,
        completions: &mut Option<TxPoll>,
    ) {
        self.running = None;
        self.messages_cq = None;
        let this = dev.data().get_ref();
        this.counters.connected.set_current(0);
        let connections = tx.as_mut().and_then(|tx| tx.close(dev));
        for rc in connections.iter().flatten() {
            rc.stop();
        }
        // RTNL is held: all queue pairs together have the time of one.
        let mut time = this.port.device().flush_time();
        self.rx.finish(|rx| {
            if let (Some(tx), Some(completions)) = (tx, completions.as_mut()) {
                completions.drain(dev, tx.ud.ring.sender(), &mut time);
            }
            rx.drain(dev, &mut time);
        });
        *completions = None;
        // The drains have reset it, unless it never got that far. What they could not free is freed with the
        // QP, when `tx` goes, too.
        match self.qp.as_ref().map(|qp| qp.state()) {
            None | Some(Ok(QpState::Reset | QpState::Init)) => {}
            Some(state) => {
                netdev_log!(dev, Warn, limited, "queue pair does not reset: {state:?}\n");
                self.qp = None;
            }
        }
        // A restart that was requested by now was meant for the queues that have ended.
        this.stuck.store(false, Relaxed);
        this.watch.lock().begin();
    }
}
