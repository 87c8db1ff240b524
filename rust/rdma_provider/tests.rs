// SPDX-License-Identifier: GPL-2.0

//! Tests of objects whose other half is nobody's but the test's.

use core::mem::MaybeUninit;
use core::ptr;

use ib_fabric::fault::{EventName, Verb};
use ipoib_sys::bindings;
use ipoib_sys::text::TextRef;
use kernel::alloc::flags::__GFP_ZERO;
use kernel::ffi::c_void;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::Arc;

use crate::ah::AddressVector;
use crate::bh_work::{Again, BhWork, Job, Trigger};
use crate::cq::{Bell, Cq};
use crate::domain::Domain;
use crate::faults::Faults;
use crate::memory::LOCAL_DMA_LKEY;
use crate::owed::Owed;
use crate::qp::{Abilities, Arrival, Delivery, Fixed, Kind, Qp, QpEvent, Refused};
use crate::region::{FastReg, Region};
use crate::srq::Srq;
use crate::state::State;
use crate::wakeups::Wakeups;
use crate::work::Path;

/// Times that a ULP was told of something.
struct Told(Atomic<u32>);

impl Told {
    fn new() -> Result<KBox<Self>> {
        Ok(KBox::new(Told(Atomic::new(0)), GFP_KERNEL)?)
    }

    fn context(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    fn times(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// Counts an event.
///
/// # Safety
///
/// `context` has to be that of a [`Told`].
unsafe extern "C" fn count_event(_event: *mut bindings::ib_event, context: *mut c_void) {
    // SAFETY: By the safety requirement.
    unsafe { &*context.cast::<Told>() }.0.fetch_add(1, Relaxed);
}

/// Counts an event for completions.
///
/// # Safety
///
/// As for [`count_event`].
unsafe extern "C" fn count_completion(_cq: *mut bindings::ib_cq, context: *mut c_void) {
    // SAFETY: By the safety requirement.
    unsafe { count_event(ptr::null_mut(), context) };
}

/// A queue pair with the half that is RDMA core's. Dropping it closes the queue pair.
struct OwnQp {
    qp: Arc<Qp>,
    told: KBox<Told>,
    // Dropped last.
    _raw: KBox<bindings::ib_qp>,
}

impl OwnQp {
    /// One of unreliable datagrams, with four receive requests, whose completions go to one queue.
    fn new(cq: &Arc<Cq>) -> Result<Self> {
        Self::of_kind(Kind::Ud, cq, Domain::new()?)
    }

    fn of_kind(kind: Kind, cq: &Arc<Cq>, domain: Arc<Domain>) -> Result<Self> {
        Self::with(kind, cq, domain, None, Faults::new()?)
    }

    fn with(
        kind: Kind,
        cq: &Arc<Cq>,
        domain: Arc<Domain>,
        srq: Option<Arc<Srq>>,
        faults: Arc<Faults>,
    ) -> Result<Self> {
        let raw = KBox::<bindings::ib_qp>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: It is zeroed, which is a value of this type.
        let mut raw = unsafe { raw.assume_init() };
        let told = Told::new()?;
        raw.event_handler = Some(count_event);
        raw.qp_context = told.context();
        let fixed = Fixed {
            raw: &raw mut *raw,
            number: 2,
            kind,
            port: 1,
            abilities: Abilities {
                block_loopback: false,
                checksum: false,
                lso: 0,
            },
            signal_all: true,
            cap: bindings::ib_qp_cap {
                max_send_wr: 1,
                max_recv_wr: 4,
                max_send_sge: 1,
                max_recv_sge: 1,
                ..pin_init::zeroed()
            },
            send_cq: cq.clone(),
            receive_cq: cq.clone(),
            srq,
            domain,
            faults,
        };
        // SAFETY: It stays until this is dropped, which closes the queue pair, and no other thread knows of it.
        let qp = unsafe { Qp::new(fixed)? };
        Ok(Self {
            qp,
            told,
            _raw: raw,
        })
    }

    fn change(&self, attr: &bindings::ib_qp_attr, mask: u32) -> Result {
        let mask = mask | bindings::ib_qp_attr_mask_IB_QP_STATE;
        self.qp.modify(attr, mask, &mut Wakeups::new())?;
        Ok(())
    }

    fn modify(&self, state: bindings::ib_qp_state) -> Result {
        let mut attr: bindings::ib_qp_attr = pin_init::zeroed();
        attr.qp_state = state;
        self.change(&attr, 0)
    }

    /// Lets it take requests.
    fn initialise(&self) -> Result {
        let mut attr: bindings::ib_qp_attr = pin_init::zeroed();
        attr.qp_state = bindings::ib_qp_state_IB_QPS_INIT;
        attr.port_num = 1;
        let of_kind = match self.qp.kind() {
            Kind::Rc => bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS,
            _ => bindings::ib_qp_attr_mask_IB_QP_QKEY,
        };
        let port = bindings::ib_qp_attr_mask_IB_QP_PORT;
        self.change(
            &attr,
            of_kind | port | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX,
        )
    }

    /// Takes one of a connection to the state Ready to Send.
    fn connect(&self) -> Result {
        self.initialise()?;
        let mut attr: bindings::ib_qp_attr = pin_init::zeroed();
        attr.qp_state = bindings::ib_qp_state_IB_QPS_RTR;
        attr.path_mtu = bindings::ib_mtu_IB_MTU_256;
        attr.ah_attr = AddressVector::default().to_raw();
        self.change(
            &attr,
            bindings::ib_qp_attr_mask_IB_QP_AV
                | bindings::ib_qp_attr_mask_IB_QP_PATH_MTU
                | bindings::ib_qp_attr_mask_IB_QP_DEST_QPN
                | bindings::ib_qp_attr_mask_IB_QP_RQ_PSN
                | bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC
                | bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
        )?;
        attr.qp_state = bindings::ib_qp_state_IB_QPS_RTS;
        self.change(
            &attr,
            bindings::ib_qp_attr_mask_IB_QP_TIMEOUT
                | bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT
                | bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY
                | bindings::ib_qp_attr_mask_IB_QP_SQ_PSN
                | bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// Posts a receive request without room.
    fn post(&self) -> Result {
        let wr: bindings::ib_recv_wr = pin_init::zeroed();
        // SAFETY: It is one request, which names no memory.
        let (_, result) = unsafe { self.qp.post_receive(&raw const wr, &mut Wakeups::new()) };
        result.map_err(|(e, _)| e)
    }

    /// Posts a receive request whose list has one element.
    fn post_room(&self, room: &mut bindings::ib_sge) -> Result {
        let mut wr: bindings::ib_recv_wr = pin_init::zeroed();
        (wr.sg_list, wr.num_sge) = (room, 1);
        // SAFETY: It is one request. The caller keeps the memory until it has closed the queue pair.
        let (_, result) = unsafe { self.qp.post_receive(&raw const wr, &mut Wakeups::new()) };
        result.map_err(|(e, _)| e)
    }

    /// Posts a SEND request whose list has one element.
    fn post_send(&self, data: &mut bindings::ib_sge) -> Result {
        let mut wr: bindings::ib_send_wr = pin_init::zeroed();
        wr.opcode = bindings::ib_wr_opcode_IB_WR_SEND;
        (wr.sg_list, wr.num_sge) = (data, 1);
        // SAFETY: It is one request. The caller keeps the memory until it has closed the queue pair.
        let (_, result) = unsafe { self.qp.post_send(&raw const wr, &mut Wakeups::new()) };
        result.map_err(|(e, _)| e)
    }

    fn state(&self) -> State {
        self.qp.attributes().0.state
    }

    /// Events that its ULP has been told of.
    fn events(&self) -> u32 {
        let _ = self.qp.wait_for_events();
        self.told.times()
    }
}

impl Drop for OwnQp {
    fn drop(&mut self) {
        self.qp.close();
    }
}

/// A completion queue with the half that is RDMA core's. Dropping it closes the queue.
struct OwnCq {
    cq: Arc<Cq>,
    told: KBox<Told>,
    // Dropped last.
    _raw: KBox<bindings::ib_cq>,
}

impl OwnCq {
    /// One with so many entries.
    fn new(entries: usize) -> Result<Self> {
        let raw = KBox::<bindings::ib_cq>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: It is zeroed, which is a value of this type.
        let mut raw = unsafe { raw.assume_init() };
        let told = Told::new()?;
        raw.event_handler = Some(count_event);
        raw.comp_handler = Some(count_completion);
        raw.cq_context = told.context();
        // SAFETY: It stays until this is dropped, which closes the queue.
        let cq = unsafe { Cq::new(&raw mut *raw, entries, Faults::new()?, None)? };
        Ok(Self {
            cq,
            told,
            _raw: raw,
        })
    }

    /// Takes the oldest completion; its status.
    fn next(&self) -> Option<bindings::ib_wc_status> {
        let mut place = [MaybeUninit::<bindings::ib_wc>::uninit()];
        // SAFETY: It was written if it was taken.
        (self.cq.poll(&mut place) > 0).then(|| unsafe { place[0].assume_init_ref() }.status)
    }

    /// Takes all completions; their number.
    fn poll(&self) -> usize {
        core::iter::from_fn(|| self.next()).count()
    }
}

impl Drop for OwnCq {
    fn drop(&mut self) {
        self.cq.close();
    }
}

#[kunit_tests(rdma_provider)]
mod cases {
    use super::*;

    /// However many queue pairs there are, each ULP is told of each event once.
    #[test]
    fn no_event_is_lost() -> Result {
        let cq = OwnCq::new(4)?;
        let mut qps = KVec::new();
        for _ in 0..100 {
            qps.push(OwnQp::new(&cq.cq)?, GFP_KERNEL)?;
        }
        for own in &qps {
            own.qp.note(QpEvent::Established);
            own.qp.note(QpEvent::Drained);
        }
        assert!(qps.iter().all(|own| own.events() == 2));
        qps[0].qp.note(QpEvent::Drained);
        assert_eq!(qps[0].events(), 3);
        qps[0].qp.close();
        qps[0].qp.note(QpEvent::Drained);
        assert!(!qps[0].qp.wait_for_events());
        assert_eq!(qps[0].told.times(), 3);
        Ok(())
    }

    /// An event that comes again before the ULP was told of it is one event.
    #[test]
    fn events_are_a_set() {
        let owed = Owed::new();
        assert!(owed.add(0b01) && !owed.add(0b10) && !owed.add(0b10));
        assert_eq!((owed.take(), owed.take()), (0b11, 0));
        assert!(owed.add(0b10));
    }

    /// A completion queue that overruns takes no more completions, and all its queue pairs to the state Error.
    #[test]
    fn an_overrun_ends_all_queue_pairs() -> Result {
        let (cq, other) = (OwnCq::new(3)?, OwnCq::new(4)?);
        let (one, two) = (OwnQp::new(&cq.cq)?, OwnQp::new(&cq.cq)?);
        let (idle, far) = (OwnQp::new(&cq.cq)?, OwnQp::new(&other.cq)?);
        for own in [&one, &two, &far] {
            own.initialise()?;
        }
        for _ in 0..4 {
            one.post()?;
        }
        two.post()?;
        // Its ULP ends it, and knows.
        one.modify(bindings::ib_qp_state_IB_QPS_ERR)?;
        let told = |owns: [&OwnQp; 4]| owns.map(OwnQp::events);
        let all = [&one, &two, &idle, &far];
        assert_eq!((told(all), cq.told.times()), ([0, 1, 0, 0], 1));
        let states = all.map(OwnQp::state);
        assert_eq!(
            states,
            [State::Error, State::Error, State::Reset, State::Init]
        );
        assert_eq!(cq.poll(), 3);

        // There is room again, and still it takes none; nor does it say so again.
        two.post()?;
        idle.initialise()?;
        assert_eq!((cq.poll(), idle.state()), (0, State::Init));
        one.post()?;
        assert_eq!((told(all), cq.told.times()), ([0, 1, 1, 0], 1));
        assert_eq!((cq.poll(), idle.state()), (0, State::Error));
        assert_eq!((other.poll(), other.told.times()), (0, 0));
        Ok(())
    }

    /// One event for two completions, or for fewer when their time has come.
    #[test]
    fn completions_are_moderated() -> Result {
        let cq = OwnCq::new(8)?;
        let bell = Bell::new(&cq.cq)?;
        let own = OwnQp::new(&cq.cq)?;
        own.initialise()?;
        own.modify(bindings::ib_qp_state_IB_QPS_ERR)?;
        cq.cq.moderate(2, u16::MAX);
        cq.cq.arm(false);
        // Each is flushed at once.
        own.post()?;
        assert_eq!(cq.told.times(), 0);
        assert!(matches!(bell.job().run(), Again::Precisely(_)));
        assert_eq!(cq.told.times(), 0);
        own.post()?;
        assert_eq!(cq.told.times(), 1);
        // Nobody asks for another one.
        own.post()?;
        own.post()?;
        assert!(matches!(bell.job().run(), Again::Idle));
        cq.cq.arm(false);
        own.post()?;
        assert_eq!(cq.told.times(), 1);
        cq.cq.moderate(0, 0);
        bell.job().run();
        own.post()?;
        assert_eq!((cq.told.times(), cq.poll()), (2, 6));
        Ok(())
    }

    /// A report that is late is one that the driver hears of, whatever has taken the queue pair to the state Error.
    #[test]
    fn a_late_report_has_a_deadline() -> Result {
        let raw = KBox::<bindings::ib_srq>::new_uninit(GFP_KERNEL | __GFP_ZERO)?;
        // SAFETY: It is zeroed, which is a value of this type.
        let mut raw = unsafe { raw.assume_init() };
        // SAFETY: It stays until the queue has been closed.
        let srq = unsafe { Srq::new(&raw mut *raw, 4, 1, 0)? };
        let faults = Faults::new()?;
        faults.change("last_wqe_delay 5")?;
        let cq = OwnCq::new(1)?;
        let causes: [fn(&Arc<Qp>); 3] = [
            |qp| qp.break_down(&mut Wakeups::new()),
            |qp| qp.report(&mut Wakeups::new(), EventName::QpFatal),
            |qp| qp.break_fatally(&mut Wakeups::new()),
        ];
        for cause in causes {
            let (domain, srq) = (Domain::new()?, Some(srq.clone()));
            let own = OwnQp::with(Kind::Rc, &cq.cq, domain, srq, faults.clone())?;
            own.initialise()?;
            assert!(!faults.take_late() && own.qp.due().is_none());
            cause(&own.qp);
            assert!(faults.take_late() && !faults.take_late());
            let (before, due) = (own.events(), own.qp.due());
            let due = due.ok_or(EINVAL)?;
            own.qp.expire(&mut Wakeups::new(), due - 1);
            assert_eq!(own.events(), before);
            own.qp.expire(&mut Wakeups::new(), due);
            assert_eq!((own.events(), own.qp.due()), (before + 1, None));
        }
        srq.close();
        Ok(())
    }

    /// After a fatal error, verbs fail but those that only flush or end.
    #[test]
    fn flushing_outlives_a_fatal_error() -> Result {
        let faults = Faults::new()?;
        faults.fail();
        for state in [State::Error, State::Reset] {
            faults.strike_modify(Some(state))?;
        }
        for state in [None, Some(State::Init), Some(State::ReadyToSend)] {
            assert_eq!(faults.strike_modify(state), Err(EIO));
        }
        for verb in [Verb::PostSend, Verb::PostRecv, Verb::PostSrqRecv] {
            faults.strike(verb)?;
        }
        assert_eq!(faults.strike(Verb::CreateQp), Err(EIO));
        // Rules still hold.
        faults.change("modify_qp:error ENOMEM at 2")?;
        faults.strike_modify(Some(State::Error))?;
        assert_eq!(faults.strike_modify(Some(State::Error)), Err(ENOMEM));
        Ok(())
    }

    /// Resetting a queue pair removes its completions, and leaves the others' in their order.
    #[test]
    fn completions_go_with_their_queue_pair() -> Result {
        let cq = OwnCq::new(3)?;
        let (one, two) = (OwnQp::new(&cq.cq)?, OwnQp::new(&cq.cq)?);
        for round in 0..4 {
            for own in [&one, &two] {
                own.initialise()?;
                own.post()?;
                own.modify(bindings::ib_qp_state_IB_QPS_ERR)?;
            }
            let gone = if round % 2 == 0 { &one } else { &two };
            gone.modify(bindings::ib_qp_state_IB_QPS_RESET)?;
            assert_eq!(cq.poll(), 1);
            for own in [&one, &two] {
                own.modify(bindings::ib_qp_state_IB_QPS_RESET)?;
            }
            assert_eq!(cq.poll(), 0);
        }
        assert_eq!(cq.told.times(), 0);
        Ok(())
    }

    /// A SEND whose memory region is closed as it is being copied is its sender's fault, and nobody else's.
    #[test]
    fn a_region_closes_under_way() -> Result {
        let memory = KVec::from_elem(7u8, 1000, GFP_KERNEL)?;
        let mut room = KVec::from_elem(0u8, 1000, GFP_KERNEL)?;
        let (here, there) = (OwnCq::new(4)?, OwnCq::new(4)?);
        let domain = Domain::new()?;
        let region = domain.add(|place| Region::new(place, 1))?;
        let key = region.place() << 8 | 5;
        region.begin_draft(4096)?;
        region.add_page(memory.as_ptr().expose_provenance() as u64)?;
        region.register(FastReg {
            key,
            access: 0,
            iova: 0,
            len: memory.len() as u64,
        })?;

        let from = OwnQp::of_kind(Kind::Rc, &here.cq, domain)?;
        let to = OwnQp::of_kind(Kind::Rc, &there.cq, Domain::new()?)?;
        for own in [&from, &to] {
            own.connect()?;
        }
        to.post_room(&mut bindings::ib_sge {
            addr: room.as_mut_ptr().expose_provenance() as u64,
            length: 1000,
            lkey: LOCAL_DMA_LKEY,
        })?;
        from.post_send(&mut bindings::ib_sge {
            addr: 0,
            length: 1000,
            lkey: key,
        })?;
        let mut fate = None;
        from.qp
            .request(&mut Wakeups::new(), 0, |wakeups, _, bth, payload| {
                assert!(region.invalidate(key));
                let check = |_: &Path| Ok::<_, ()>(());
                let arrival = Arrival {
                    now: 0,
                    port: 1,
                    holds: true,
                };
                let accepted = to.qp.accept(wakeups, arrival, bth, payload, check);
                fate = Some(accepted.map(|_| ()));
                Ok(Delivery::Sent)
            });
        assert_eq!(fate, Some(Err(Refused::Payload)));
        assert_eq!(here.next(), Some(bindings::ib_wc_status_IB_WC_LOC_PROT_ERR));
        assert_eq!(from.state(), State::Error);
        assert_eq!((there.next(), to.state()), (None, State::ReadyToSend));
        Ok(())
    }

    /// A job that does nothing.
    struct Lazy;

    impl Job for Lazy {
        fn run(&self) -> Again {
            Again::Idle
        }
    }

    /// A job that is forgotten keeps the text that it would run.
    #[test]
    fn a_job_keeps_the_text() -> Result {
        let (trigger, job) = (Trigger::new()?, Arc::new(Lazy, GFP_KERNEL)?);
        assert!(TextRef::is_kept_by(|| BhWork::new(trigger, job))?);
        Ok(())
    }
}
