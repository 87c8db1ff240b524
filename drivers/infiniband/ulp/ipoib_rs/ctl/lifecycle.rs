// SPDX-License-Identifier: GPL-2.0

//! What an interface owns of the RDMA device: one PD, two CQs and one UD QP from registration to
//! unregistration, and the two rings on them while it is up. The QP and its CQs are replaced when they
//! are broken, and the QP's number is another one then, and with it our address.

use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_netdev::ethtool::Moderation;
use ipoib_netdev::napi::{Handle, Napi, Poll, Source};
use ipoib_netdev::netdev_log;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_proto::credit;
use ipoib_proto::flow_label;
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::{Flags, HwAddr, Qpn};
use ipoib_proto::mtu;
use ipoib_proto::queue::Queue;
use ipoib_proto::rx::{Local, GRH_LEN};
use ipoib_proto::sizes::Sizes;
use ipoib_proto::thresholds::Thresholds;
use ipoib_proto::vectors::Vectors;
use ipoib_rdma::{
    random_psn, rc_ring, send_ring, Ah, AhOptions, CompletionHandler, Cq, Device as RdmaDevice,
    FailureHandler, GidRef, Intake, IntakeRing, Listener, MessagePool, Pd, QpCaps, RcInit, RcQp,
    Reaper, RecvRing, SendCompletions, UdInit, UdQp,
};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::order::Order;
use crate::base::params;
use crate::base::port::{self, Attributes, Port};
use crate::ctl::cm::Answerer;
use crate::ctl::connect;
use crate::ctl::netdev::{Interface, CONNECT, PUMP, RECOVER, WATCH};
use crate::data::completions::{RcDone, TxPoll};
use crate::data::rx::RxPoll;
use crate::data::tx::{Line, Tx};
use crate::rc::conn::{self, Reliable};
use crate::rc::rx::RcRx;
use crate::rc::table::Connections;
use crate::ud::paths::Destinations;

/// The most elements that a frame is gathered from: its head and as many fragments as an skb has.
const MAX_SGE: u32 = 18;

/// Frames that connections have on their way together; a power of two.
const RC_SENDS: u32 = 1024;

/// The elements of a send.
fn max_sge(device: &RdmaDevice) -> u32 {
    device.max_sge().min(MAX_SGE)
}

/// What an interface has in connected mode, until each is where it belongs.
struct Parts {
    reliable: Arc<Reliable>,
    connections: Option<Connections>,
    rx: Option<KBox<RcRx>>,
    done: Option<RcDone>,
}

/// What an address handle is made from, and what sends.
pub(crate) struct Endpoint {
    /// The queue pair.
    pub(crate) qp: Arc<UdQp>,
    /// The port.
    pub(crate) port: Arc<Port>,
    pd: Arc<Pd>,
    gid: GidRef,
    address: HwAddr,
    options: AhOptions,
}

impl Endpoint {
    /// An address handle for a peer or group.
    ///
    /// # Errors
    ///
    /// Those of resolving the GID, and `ENOMEM`.
    ///
    /// # Context
    ///
    /// Sleeps; never under RTNL.
    pub(crate) fn address_handle(&self, address: &HwAddr) -> Result<Arc<Ah>> {
        let options = AhOptions {
            flow_label: flow_label::between(&self.address, address),
            ..self.options
        };
        Ah::new(&self.pd, &self.gid, address.gid().0, options)
    }
}

/// Schedules a NAPI when a CQ has something.
struct Wake<P: Poll> {
    napi: Handle<P>,
    dev: OwnedDevice<Interface>,
}

impl<P: Poll> Wake<P> {
    fn new(napi: Handle<P>, dev: &Device<Interface>) -> Self {
        Self {
            napi,
            dev: dev.get_typed(),
        }
    }
}

impl<P: Poll> CompletionHandler for Wake<P> {
    fn completion(&self) {
        self.napi.schedule();
    }

    fn failed(&self) {
        Interface::queue_failed(&self.dev, "completion queue");
    }
}

/// Has the QP of an interface replaced when it breaks.
struct Alarm(OwnedDevice<Interface>);

impl FailureHandler for Alarm {
    fn failed(&self) {
        Interface::queue_failed(&self.0, "queue pair");
    }
}

/// The events of a CQ, for the NAPI that polls its ring, and of that for connections.
pub(crate) struct Events(Arc<Cq>, Option<Arc<Cq>>);

impl Source for Events {
    fn arm(&self) -> bool {
        self.0.arm() | self.1.as_ref().is_some_and(|cq| cq.arm())
    }
}

/// What an up interface's rings were made for.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// Our GID.
    pub(crate) gid: Gid,
    /// The largest message that a receive buffer holds.
    pub(crate) ib_mtu: u32,
}

/// An interface's verbs objects. Fields are dropped in order: users first.
pub(crate) struct Verbs {
    /// Who answers requests for connections.
    listeners: KVec<Listener<Answerer>>,
    rx: Napi<RxPoll>,
    tx: Napi<TxPoll>,
    running: Option<Running>,
    /// None from when one did not reset until the next start.
    qp: Option<Arc<UdQp>>,
    pd: Arc<Pd>,
    /// Waits for the address handles, and so comes last.
    reaper: Reaper,
    qpn: Qpn,
    max_sge: u32,
    vectors: Vectors,
}

impl Verbs {
    /// Makes all objects; the QP stays in RESET.
    ///
    /// # Errors
    ///
    /// Those of the device.
    ///
    /// # Context
    ///
    /// Under RTNL; sleeps.
    pub(crate) fn new(dev: &Device<Interface>, rtnl: &mut Rtnl) -> Result<Self> {
        let port = &dev.data().get_ref().port;
        let device = port.device();
        let rx = Napi::<RxPoll>::new(dev)?;
        let tx = Napi::<TxPoll>::new(dev)?;
        dev.set_queue_napi(&rx, rtnl);
        dev.set_queue_napi(&tx, rtnl);
        let reaper = Reaper::new()?;
        let pd = Pd::new(device, &reaper)?;
        let vectors = port.shared().next_vectors(device);
        let (qp, qpn) = Self::make_qp(dev, &pd, &rx, &tx, vectors)?;
        Ok(Self {
            listeners: KVec::with_capacity(2, GFP_KERNEL)?,
            rx,
            tx,
            running: None,
            qp: Some(qp),
            pd,
            reaper,
            qpn,
            max_sge: max_sge(device),
            vectors,
        })
    }

    /// Makes a QP with CQs of its own, of as much as the device has room for, and says its number.
    fn make_qp(
        dev: &Device<Interface>,
        pd: &Arc<Pd>,
        rx: &Napi<RxPoll>,
        tx: &Napi<TxPoll>,
        vectors: Vectors,
    ) -> Result<(Arc<UdQp>, Qpn)> {
        let this = dev.data().get_ref();
        let device = this.port.device();
        let send_sge = max_sge(device);
        let mut limits = Sizes::first(params::queue_sizes(), device.max_queue()).ok_or(EINVAL)?;
        let (qp, recv_cq) = loop {
            let Sizes { receive, send } = limits;
            let recv_cq = Cq::new(
                device,
                receive,
                vectors.receive,
                Wake::new(rx.handle(), dev),
            )?;
            let send_cq = Cq::new(device, send, vectors.send, Wake::new(tx.handle(), dev))?;
            let caps = QpCaps {
                send_wr: send,
                recv_wr: receive,
                send_sge,
                recv_sge: 1,
            };
            let alarm = Alarm(dev.get_typed());
            let init = UdInit {
                pd,
                send_cq: &send_cq,
                recv_cq: &recv_cq,
                caps,
                port: this.port.number(),
            };
            match UdQp::new(init, alarm) {
                // With so many elements, it has room for fewer requests than it says.
                Err(error) if error == ENOMEM || error == EINVAL => {
                    limits = limits.smaller(send_sge).ok_or(error)?;
                }
                other => break (other?, recv_cq),
            }
        };
        let moderation = this.settings.moderation();
        if moderation.frames != 0 || moderation.usecs != 0 {
            recv_cq.moderate(moderation.frames, moderation.usecs)?;
        }
        if this.settings.set_queue_limits(limits) {
            netdev_log!(
                dev,
                Info,
                "the RDMA device has room for rings of {} and {} frames, not of recv_queue_size and send_queue_size\n",
                limits.receive,
                limits.send
            );
        }
        let qpn = Qpn::unicast(qp.qpn()).ok_or(EPROTO)?;
        Ok((qp, qpn))
    }

    /// Brings the QP to INIT. Where it is broken, or the device does not let it leave RESET again, as irdma
    /// does not, there is a new one.
    fn initialise(&mut self, dev: &Device<Interface>) -> Result<Arc<UdQp>> {
        let this = dev.data().get_ref();
        let (pkey_index, qkey) = (this.pkey_index, params::qkey().0);
        let broken = this.broken.xchg(false, Relaxed);
        if let Some(qp) = self.qp.take().filter(|_| !broken) {
            if qp.to_init(pkey_index, qkey).is_ok() {
                self.qp = Some(qp.clone());
                return Ok(qp);
            }
        }
        let (qp, qpn) = Self::make_qp(dev, &self.pd, &self.rx, &self.tx, self.vectors)?;
        self.qpn = qpn;
        self.qp = Some(qp.clone());
        this.moved.store(true, Relaxed);
        qp.to_init(pkey_index, qkey)?;
        Ok(qp)
    }

    /// Sets how many frames a receive poll takes at a time.
    pub(crate) fn set_budget(&self, budget: u32) {
        self.rx.set_budget(budget);
    }

    /// Changes how the completions of received frames are reported.
    ///
    /// # Errors
    ///
    /// Those of the device.
    pub(crate) fn moderate(&self, moderation: Moderation) -> Result {
        self.qp.as_ref().map_or(Ok(()), |qp| {
            qp.recv_cq().moderate(moderation.frames, moderation.usecs)
        })
    }

    /// What can be asked about received frames.
    pub(crate) fn rx(&self) -> Handle<RxPoll> {
        self.rx.handle()
    }

    /// Our QPN.
    pub(crate) fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// The most elements of a send.
    pub(crate) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// What the rings were made for, while the interface is up.
    pub(crate) fn running(&self) -> Option<Running> {
        self.running
    }

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
        let gid = port::choose_gid(this.port.device(), this.port.number())?;
        let our_gid = Gid(gid.raw());
        let mut destinations = Destinations::new(this.broadcast)?;
        destinations.set_up(attributes.active);
        destinations.want(this.groups.lock().wanted());
        let (traffic_class, sl) = (this.settings.traffic_class(), this.settings.service_level());
        let endpoint = Arc::new(
            Endpoint {
                qp: self.initialise(dev)?,
                port: this.port.clone(),
                pd: self.pd.clone(),
                gid,
                address: HwAddr::new(Flags::NONE, self.qpn, our_gid),
                options: AhOptions {
                    traffic_class,
                    sl,
                    ..AhOptions::default()
                },
            },
            GFP_KERNEL,
        )?;
        let running = Running {
            gid: our_gid,
            ib_mtu: attributes.ib_mtu,
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
        let (sender, completions) = send_ring(&qp, sends, self.max_sge, params::qkey().0)?;
        let thresholds = Thresholds::new(sends, 1).ok_or(EINVAL)?;
        let line = Line::new(
            sender,
            thresholds,
            dev.mtu().min(mtu::ip_mtu(running.ib_mtu)),
            this.settings.extensions(),
            self.tx.handle(),
            this.counters.clone(),
        );
        let mut parts = if this.is_connected() {
            Some(self.connected(dev, &running)?)
        } else {
            None
        };
        let reliable = parts.as_ref().map(|parts| parts.reliable.clone());
        self.receive(dev, &running, &qp, recv, parts.as_deref_mut())?;
        self.complete(dev, &qp, completions, thresholds, parts.as_deref_mut())?;
        dev.reset_queue_limit();
        let connections = parts.and_then(|mut parts| parts.connections.take());
        Self::send(dev, destinations, line, endpoint, connections);
        self.running = Some(running);
        // What arrived before NAPI was enabled rang no bell that anyone heard.
        self.rx.handle().schedule();
        self.tx.handle().schedule();
        if let Some(reliable) = reliable {
            self.listen(dev, &reliable)?;
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
            broadcast: this.broadcast,
        };
        let cq = parts.as_ref().map(|parts| parts.reliable.recv_cq.clone());
        self.rx.enable(
            RxPoll::new(
                ring,
                parts.and_then(|parts| parts.rx.take()),
                local,
                Order::new(this.settings.clone())?,
                this.settings.clone(),
                this.counters.clone(),
                dev.get_typed(),
            ),
            Events(qp.recv_cq().clone(), cq),
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
        let cq = parts.as_ref().map(|parts| parts.reliable.send_cq.clone());
        self.tx.enable(
            TxPoll::new(
                completions,
                parts.and_then(|parts| parts.done.take()),
                thresholds,
                dev.data().get_ref().counters.clone(),
                dev.get_typed(),
            ),
            Events(qp.send_cq().clone(), cq),
        )
    }

    /// Lets the stack send.
    #[inline(never)]
    fn send(
        dev: &Device<Interface>,
        destinations: Destinations,
        line: Line,
        endpoint: Arc<Endpoint>,
        connections: Option<Connections>,
    ) {
        *dev.lock_tx() = Some(Tx {
            destinations,
            line,
            endpoint,
            connections,
            too_big: Queue::new(u32::MAX),
        });
    }

    /// Creates the intake of connections, a shared receive queue if the device has one for us, and a pool of
    /// buffers for it.
    fn intake(&self, dev: &Device<Interface>) -> Result<(Arc<Intake>, MessagePool)> {
        let device = self.pd.device();
        let message = conn::MAX_MESSAGE as usize;
        let wanted = params::rc_recv_queue_size();
        let shared = || -> Result<_> {
            if device.max_srq() == 0 {
                return Err(EOPNOTSUPP);
            }
            let buffers = wanted.min(device.max_srq_wr());
            let sges = device.max_srq_sge() as usize;
            let pool = MessagePool::new(device, message, sges, buffers as usize)?;
            let intake = Intake::shared(&self.pd, buffers, pool.parts() as u32)?;
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

    /// Whether there can be connections, by making what they need.
    ///
    /// # Errors
    ///
    /// Those of the device; `ENOMEM`.
    ///
    /// # Context
    ///
    /// Under RTNL; sleeps.
    #[inline(never)]
    pub(crate) fn try_connected(&self, dev: &Device<Interface>) -> Result {
        let device = self.pd.device();
        let (intake, pool) = self.intake(dev)?;
        let buffers = intake.max_wr();
        let recv_cq = Cq::new(device, buffers, 0, Wake::new(self.rx.handle(), dev))?;
        let send_cq = Cq::new(device, RC_SENDS, 0, Wake::new(self.tx.handle(), dev))?;
        let caps = QpCaps {
            send_wr: conn::SEND_WR.min(dev.data().settings.queue_limits().send),
            recv_wr: credit::cost(1),
            send_sge: self.max_sge,
            recv_sge: pool.parts() as u32,
        };
        let permit = Arc::new((), GFP_KERNEL)?;
        let init = RcInit {
            pd: &self.pd,
            send_cq: &send_cq,
            recv_cq: &recv_cq,
            intake: &intake,
            caps,
        };
        RcQp::new(init, permit)?;
        drop(intake);
        // There may be none left but these.
        self.reaper.flush();
        Ok(())
    }

    /// What connections need.
    #[inline(never)]
    fn connected(&self, dev: &Device<Interface>, running: &Running) -> Result<KBox<Parts>> {
        let this = dev.data().get_ref();
        let device = this.port.device();
        let (intake, pool) = self.intake(dev)?;
        let buffers = intake.max_wr();
        let Vectors { receive, send } = self.vectors;
        let recv_cq = Cq::new(device, buffers, receive, Wake::new(self.rx.handle(), dev))?;
        let send_cq = Cq::new(device, RC_SENDS, send, Wake::new(self.tx.handle(), dev))?;
        let mut ring = IntakeRing::new(&intake, &recv_cq, pool, buffers)?;
        ring.fill()?;
        let (sender, completions) = rc_ring(&self.pd, &send_cq, RC_SENDS, self.max_sge)?;
        let reliable = Arc::new(
            Reliable {
                pd: self.pd.clone(),
                intake,
                send_cq,
                recv_cq,
                max_sge: self.max_sge,
                rx: self.rx.handle(),
                settings: this.settings.clone(),
                gid: running.gid,
                qpn: self.qpn,
                pkey: this.pkey,
                ib_mtu: running.ib_mtu,
            },
            GFP_KERNEL,
        )?;
        let counters = &this.counters;
        let number = this.port.quota().number();
        let connections =
            Connections::new(reliable.clone(), sender, counters.clone(), buffers, number)?;
        let shared = connections.line.shared().clone();
        let parts = Parts {
            reliable,
            rx: Some(RcRx::new(ring, shared.clone(), counters.clone())?),
            done: Some(RcDone {
                completions,
                shared,
            }),
            connections: Some(connections),
        };
        Ok(KBox::new(parts, GFP_KERNEL)?)
    }

    /// Answers requests for connections from now on.
    fn listen(&mut self, dev: &Device<Interface>, reliable: &Arc<Reliable>) -> Result {
        for service in connect::services(reliable) {
            let answerer = Arc::new(
                Answerer {
                    dev: dev.get_typed(),
                    reliable: reliable.clone(),
                    port: dev.data().port.number(),
                },
                GFP_KERNEL,
            )?;
            let listener = Listener::new(&self.pd, service, answerer)?;
            self.listeners.push(listener, GFP_KERNEL)?;
        }
        Ok(())
    }

    /// Makes new rings in the sizes that the settings say, and leaves all else as it is: the QP
    /// keeps its number, and the interface its carrier, its paths and its groups.
    ///
    /// # Errors
    ///
    /// Those of the device, and `ENOMEM`; nothing runs then.
    ///
    /// # Context
    ///
    /// Under RTNL, with the transmit queue disabled; sleeps.
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
        dev.cancel_task(CONNECT);
        // Its completions would start the queue again.
        let completions = self.tx.disable();
        // A job that is under way would find nobody to bring its answer to; none begins now.
        dev.cancel_task(PUMP);
        dev.cancel_task(RECOVER);
        dev.cancel_task(WATCH);
        // The work item may have started the queue once more before it ended.
        dev.disable_queue();
        let mut tx = dev.lock_tx().take();
        pausing.store(false, Relaxed);
        self.halt(dev, tx.as_mut(), completions);
        let Some(Tx {
            destinations,
            endpoint,
            line,
            ..
        }) = tx
        else {
            return Err(ENODEV);
        };
        drop(line);
        let pkey_index = dev.data().pkey_index;
        endpoint.qp.to_init(pkey_index, params::qkey().0)?;
        self.run(dev, running, destinations, endpoint)?;
        if broken.load(Relaxed) {
            // It broke meanwhile, and `halt` has forgotten the restart that was asked for.
            Interface::restart_soon(dev);
        }
        dev.queue_task(PUMP, 0);
        Ok(())
    }

    /// Takes the rings down: first nobody sends, then nothing completes, then all is freed.
    ///
    /// # Context
    ///
    /// Under RTNL, with the transmit queue disabled; sleeps.
    pub(crate) fn stop(&mut self, dev: &Device<Interface>) {
        self.listeners.clear();
        let mut tx = dev.lock_tx().take();
        dev.cancel_task(PUMP);
        dev.cancel_task(RECOVER);
        dev.cancel_task(WATCH);
        dev.cancel_task(CONNECT);
        dev.data().get_ref().groups.lock().leave_all();
        let completions = self.tx.disable();
        // Completions may have started the queue meanwhile, and who starts it next is to wake who waits.
        dev.disable_queue();
        self.halt(dev, tx.as_mut(), completions);
    }

    /// Ends the receive poll, after the other one, resets the QP and frees what the rings hold.
    fn halt(
        &mut self,
        dev: &Device<Interface>,
        mut tx: Option<&mut Tx>,
        mut completions: Option<TxPoll>,
    ) {
        self.running = None;
        let this = dev.data().get_ref();
        this.counters.connected.set_current(0);
        let connections = tx.as_mut().and_then(|tx| tx.connections.take());
        // What was not posted yet is dropped with the sender; nobody waits for it then.
        let connections = connections.map(Connections::into_all);
        for rc in connections.iter().flatten() {
            rc.stop();
        }
        self.rx.finish(|rx| {
            if let (Some(tx), Some(completions)) = (tx, &mut completions) {
                completions.drain(dev, tx.line.sender());
            }
            rx.drain(dev);
        });
        // Behind the receive ring: what a queue pair that cannot be reset was to send is freed by destroying it,
        // when nobody posts receives to it any more.
        drop(completions);
        // The drains have reset it, unless it never got that far. What they could not free is freed with the
        // QP, when `tx` goes, too.
        if let Some(Err(error)) = self.qp.as_ref().map(|qp| qp.to_reset()) {
            netdev_log!(dev, Warn, limited, "queue pair does not reset: {error:?}\n");
            self.qp = None;
        }
        dev.reset_queue_limit();
        // Who has asked for a restart by now meant what has ended.
        this.stuck.store(false, Relaxed);
        this.watch.lock().begin();
    }
}
