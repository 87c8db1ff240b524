// SPDX-License-Identifier: GPL-2.0

//! Objects of the RDMA device that an interface owns: one PD, two CQs and one UD QP from registration to
//! unregistration. The QP and its CQs are replaced when they are broken, and the QP's number is another one
//! then, and with it our address.

use ipoib_netdev::device::Device;
use ipoib_netdev::ethtool::Moderation;
use ipoib_netdev::napi::Napi;
use ipoib_netdev::netdev_log;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_netdev::skb::MAX_PARTS;
use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::Qpn;
use ipoib_proto::pkey::PKey;
use ipoib_proto::sizes::Sizes;
use ipoib_proto::vectors::Vectors;
use ipoib_rdma::{Cq, Device as RdmaDevice, Listener, Pd, QpCaps, UdInit, UdQp};
use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::params;
use crate::ctl::connect::ConnListener;
use crate::data::completions::TxPoll;
use crate::data::rx::RxPoll;

/// The most elements that a frame is gathered from.
const MAX_SGE: u32 = MAX_PARTS as u32;

/// Returns true if a device gathers a frame from as many pieces as one may have.
pub(super) fn gathers_all(device: &RdmaDevice) -> bool {
    device.max_sge() >= MAX_SGE
}

/// The elements of a send.
fn max_sge(device: &RdmaDevice) -> u32 {
    device.max_sge().min(MAX_SGE)
}

/// Properties of the port for which the rings were made.
#[derive(Clone, Copy)]
pub(crate) struct Running {
    /// Our GID.
    pub(crate) gid: Gid,
    /// The largest message that a receive buffer holds.
    pub(crate) ib_mtu: u32,
    /// The partition.
    pub(crate) pkey: PKey,
    /// Its index in the port's table.
    pub(crate) pkey_index: u16,
    /// The port did not have our GID when that was last looked for.
    pub(crate) gid_missed: bool,
}

/// An interface's verbs objects. Fields are dropped in order: users first.
pub(crate) struct Verbs {
    /// Listeners for requests of peers.
    pub(super) listeners: KVec<Listener<ConnListener>>,
    pub(super) rx: Napi<RxPoll>,
    pub(super) tx: Napi<TxPoll>,
    /// Properties for which the rings were made, while the interface is up.
    pub(super) running: Option<Running>,
    /// None from when one did not reset until the next start.
    pub(super) qp: Option<Arc<UdQp>>,
    /// The CQ of what connections receive, while the interface is up.
    pub(super) messages_cq: Option<Arc<Cq>>,
    pub(super) pd: Arc<Pd>,
    /// Our QPN.
    pub(super) qpn: Qpn,
    /// The most elements of a send.
    pub(super) max_sge: u32,
    pub(super) vectors: Vectors,
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
        let rx = dev.add_napi::<RxPoll>()?;
        let tx = dev.add_napi::<TxPoll>()?;
        dev.set_queue_napi(&rx, rtnl)?;
        dev.set_queue_napi(&tx, rtnl)?;
        let pd = Pd::new(device, &dev.data().reaper)?;
        let vectors = port.shared().next_vectors(device);
        let (qp, qpn) = Self::make_qp(dev, &pd, &rx, &tx, vectors)?;
        Ok(Self {
            listeners: KVec::with_capacity(2, GFP_KERNEL)?,
            rx,
            tx,
            running: None,
            qp: Some(qp),
            messages_cq: None,
            pd,
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
        let qp = loop {
            let Sizes { receive, send } = limits;
            let recv_cq = Self::receive_cq(dev, rx, receive, vectors)?;
            let send_cq = Self::send_cq(dev, tx, send, vectors)?;
            let caps = QpCaps {
                send_wr: send,
                recv_wr: receive,
                send_sge,
                recv_sge: 1,
            };
            let alarm = Interface::alarm(dev);
            let init = UdInit {
                pd,
                send_cq: &send_cq,
                recv_cq: &recv_cq,
                caps,
                port: this.port.number(),
                offloads: this.port.is_infiniband(),
            };
            match UdQp::new(init, alarm) {
                // With so many elements, it has room for fewer requests than it says.
                Err(error) if error == ENOMEM || error == EINVAL => {
                    limits = limits.smaller(send_sge).ok_or(error)?;
                }
                other => break other?,
            }
        };
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

    /// Makes a CQ of `entries` for what is sent.
    pub(super) fn send_cq(
        dev: &Device<Interface>,
        tx: &Napi<TxPoll>,
        entries: u32,
        vectors: Vectors,
    ) -> Result<Arc<Cq>> {
        let device = dev.data().get_ref().port.device();
        let alarm = Interface::alarm(dev);
        Cq::new(device, entries, vectors.send, tx.handle(), alarm)
    }

    /// Makes a CQ of `entries` for what is received, which reports it as the settings say.
    pub(super) fn receive_cq(
        dev: &Device<Interface>,
        rx: &Napi<RxPoll>,
        entries: u32,
        vectors: Vectors,
    ) -> Result<Arc<Cq>> {
        let this = dev.data().get_ref();
        let (device, alarm) = (this.port.device(), Interface::alarm(dev));
        let cq = Cq::new(device, entries, vectors.receive, rx.handle(), alarm)?;
        let moderation = this.settings.moderation();
        if moderation.frames != 0 || moderation.usecs != 0 {
            cq.moderate(moderation.frames, moderation.usecs)?;
        }
        Ok(cq)
    }

    /// Brings the QP to INIT. Where it is broken, or the device does not let it leave RESET again, as irdma
    /// does not, there is a new one.
    pub(super) fn initialise(
        &mut self,
        dev: &Device<Interface>,
        pkey_index: u16,
    ) -> Result<Arc<UdQp>> {
        let this = dev.data().get_ref();
        let qkey = this.qkey().0;
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

    /// Changes how the completions of received frames are reported, from `before`.
    ///
    /// # Errors
    ///
    /// Those of the device; nothing has changed then.
    pub(crate) fn moderate(&self, moderation: Moderation, before: Moderation) -> Result {
        let set = |cq: &Arc<Cq>, to: Moderation| cq.moderate(to.frames, to.usecs);
        let datagrams = self.qp.as_ref().map(|qp| qp.recv_cq());
        if let Some(cq) = datagrams {
            set(cq, moderation)?;
        }
        if let Some(cq) = self.messages_cq.as_ref() {
            set(cq, moderation).inspect_err(|_| {
                // The device has done that before.
                datagrams.map(|cq| set(cq, before));
            })?;
        }
        Ok(())
    }

    /// Notes whether the port lacks our GID. Says whether it lacked it the last time.
    pub(crate) fn miss_gid(&mut self, missed: bool) -> bool {
        let running = self.running.as_mut();
        running.is_some_and(|running| core::mem::replace(&mut running.gid_missed, missed))
    }
}
