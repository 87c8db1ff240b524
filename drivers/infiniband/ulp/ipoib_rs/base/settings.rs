// SPDX-License-Identifier: GPL-2.0

//! What can be tuned while an interface runs: `net.ipoib.<interface>.*`.

use ipoib_netdev::device::Device;
use ipoib_netdev::ethtool::Moderation;
use ipoib_netdev::napi;
use ipoib_netdev::relaxed::Relax;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_netdev::sysctl::{Tunable, Variable};
use ipoib_proto::cm::MAX_LANES;
use ipoib_proto::reorder;
use ipoib_proto::sizes::{self, Sizes};
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};

use crate::base::params;
use crate::ctl::netdev::Interface;
use crate::rc::table;

/// How long a frame is held by default.
///
/// The paths of a fabric differ by much less, but on a busy host it can take milliseconds until the
/// one that is waited for is polled. TCP waits for an acknowledgement for much longer.
const DEFAULT_TIMEOUT_US: u32 = 5_000;
/// The longest: TCP's shortest retransmission timeout is not far above.
const MAX_TIMEOUT_US: u32 = 100_000;

/// The longest frame that can be asked to be copied: more costs more than a new buffer.
const MAX_COPYBREAK: u32 = 2_048;

/// The highest priority of Ethernet frames, as which RoCE takes a service level.
const MAX_PRIORITY: u32 = 7;

/// The longest time without a frame for a connection: a day.
const MAX_IDLE_S: u32 = 86_400;

/// The values, which one context writes, under RTNL, and the others read whenever they need them.
pub(crate) struct Tunables {
    reorder_window: Atomic<u32>,
    reorder_timeout_us: Atomic<u32>,
    extensions: Atomic<u32>,
    rx_copybreak: Atomic<u32>,
    recv_queue_size: Atomic<u32>,
    send_queue_size: Atomic<u32>,
    max_recv_queue_size: Atomic<u32>,
    max_send_queue_size: Atomic<u32>,
    traffic_class: Atomic<u32>,
    service_level: Atomic<u32>,
    napi_budget: Atomic<u32>,
    rx_usecs: Atomic<u32>,
    rx_frames: Atomic<u32>,
    icrc: Atomic<u32>,
    large_frames: Atomic<u32>,
    rc_max_qps: Atomic<u32>,
    rc_max_connections: Atomic<u32>,
    rc_idle_s: Atomic<u32>,
}

impl Tunables {
    /// The defaults.
    pub(crate) fn new() -> Self {
        let Sizes { receive, send } = params::queue_sizes();
        Self {
            reorder_window: Atomic::new(reorder::DEFAULT_WIDTH.into()),
            reorder_timeout_us: Atomic::new(DEFAULT_TIMEOUT_US),
            extensions: Atomic::new(1),
            rx_copybreak: Atomic::new(0),
            recv_queue_size: Atomic::new(receive),
            send_queue_size: Atomic::new(send),
            max_recv_queue_size: Atomic::new(receive),
            max_send_queue_size: Atomic::new(send),
            traffic_class: Atomic::new(0),
            service_level: Atomic::new(0),
            napi_budget: Atomic::new(napi::MAX_BUDGET),
            rx_usecs: Atomic::new(0),
            rx_frames: Atomic::new(0),
            icrc: Atomic::new(1),
            large_frames: Atomic::new(1),
            rc_max_qps: Atomic::new(1),
            rc_max_connections: Atomic::new(table::MAX as u32),
            rc_idle_s: Atomic::new(60),
        }
    }

    /// The width of the reorder window; 0: frames are passed up as they come.
    pub(crate) fn reorder_window(&self) -> u8 {
        // Never more than `MAX_WIDTH`.
        self.reorder_window.get() as u8
    }

    /// For how long a frame may be held, in microseconds; 0: until the end of the poll.
    pub(crate) fn reorder_timeout_us(&self) -> u32 {
        self.reorder_timeout_us.load(Relaxed)
    }

    /// Whether what RFC 4391 does not know may be used.
    pub(crate) fn extensions(&self) -> bool {
        self.extensions.get() != 0
    }

    /// Whether the checksums of TCP and UDP may be left to the fabric's own, by connections.
    pub(crate) fn icrc(&self) -> bool {
        self.icrc.load(Relaxed) != 0
    }

    /// Whether packets that are still to be segmented may go by connections whole.
    pub(crate) fn large_frames(&self) -> bool {
        self.large_frames.load(Relaxed) != 0
    }

    /// The most connections to one peer.
    pub(crate) fn rc_max_qps(&self) -> u32 {
        self.rc_max_qps.load(Relaxed)
    }

    /// The most connections.
    pub(crate) fn rc_max_connections(&self) -> u32 {
        self.rc_max_connections.load(Relaxed)
    }

    /// After how many seconds without a frame a connection is ended.
    pub(crate) fn rc_idle_s(&self) -> u32 {
        self.rc_idle_s.load(Relaxed)
    }

    /// Frames of up to so many octets are copied out of their buffer, which stays on the ring.
    pub(crate) fn rx_copybreak(&self) -> u32 {
        self.rx_copybreak.get()
    }

    /// Frames in the rings.
    pub(crate) fn queue_sizes(&self) -> Sizes {
        Sizes {
            receive: self.recv_queue_size.load(Relaxed),
            send: self.send_queue_size.load(Relaxed),
        }
    }

    /// Takes note of sizes that were found good.
    pub(crate) fn set_queue_sizes(&self, sizes: Sizes) {
        self.recv_queue_size.store(sizes.receive, Relaxed);
        self.send_queue_size.store(sizes.send, Relaxed);
    }

    /// Work requests that the queues have room for, and so the most that the rings can hold.
    pub(crate) fn queue_limits(&self) -> Sizes {
        Sizes {
            receive: self.max_recv_queue_size.load(Relaxed),
            send: self.max_send_queue_size.load(Relaxed),
        }
    }

    /// Takes note of the queues that there are. The rings become smaller if they have to: true.
    pub(crate) fn set_queue_limits(&self, limits: Sizes) -> bool {
        self.max_recv_queue_size.store(limits.receive, Relaxed);
        self.max_send_queue_size.store(limits.send, Relaxed);
        let sizes = self.queue_sizes();
        let fitting = sizes.min(limits);
        self.set_queue_sizes(fitting);
        fitting != sizes
    }

    /// Traffic class and service level of all packets.
    pub(crate) fn class(&self) -> (u8, u8) {
        // Within the bounds of their variables.
        (
            self.traffic_class.load(Relaxed) as u8,
            self.service_level.load(Relaxed) as u8,
        )
    }

    /// Frames that a receive poll takes at a time.
    pub(crate) fn napi_budget(&self) -> u32 {
        self.napi_budget.load(Relaxed)
    }

    /// How the completions of received frames are reported; all 0: each at once.
    pub(crate) fn moderation(&self) -> Moderation {
        // Stored from numbers of 16 bits.
        Moderation {
            usecs: self.rx_usecs.load(Relaxed) as u16,
            frames: self.rx_frames.load(Relaxed) as u16,
        }
    }

    /// Takes note of what the device does now.
    pub(crate) fn set_moderation(&self, moderation: Moderation) {
        self.rx_usecs.store(moderation.usecs.into(), Relaxed);
        self.rx_frames.store(moderation.frames.into(), Relaxed);
    }

    fn variable(&self, id: usize) -> Option<&Atomic<u32>> {
        match id {
            REORDER_WINDOW => Some(&self.reorder_window),
            REORDER_TIMEOUT_US => Some(&self.reorder_timeout_us),
            EXTENSIONS => Some(&self.extensions),
            RX_COPYBREAK => Some(&self.rx_copybreak),
            RECV_QUEUE_SIZE => Some(&self.recv_queue_size),
            SEND_QUEUE_SIZE => Some(&self.send_queue_size),
            NAPI_BUDGET => Some(&self.napi_budget),
            TRAFFIC_CLASS => Some(&self.traffic_class),
            SERVICE_LEVEL => Some(&self.service_level),
            ICRC => Some(&self.icrc),
            LARGE_FRAMES => Some(&self.large_frames),
            RC_MAX_QPS => Some(&self.rc_max_qps),
            RC_MAX_CONNECTIONS => Some(&self.rc_max_connections),
            RC_IDLE_S => Some(&self.rc_idle_s),
            _ => None,
        }
    }
}

const REORDER_WINDOW: usize = 0;
const REORDER_TIMEOUT_US: usize = 1;
const EXTENSIONS: usize = 2;
const RX_COPYBREAK: usize = 3;
const RECV_QUEUE_SIZE: usize = 4;
const SEND_QUEUE_SIZE: usize = 5;
const NAPI_BUDGET: usize = 6;
const ICRC: usize = 7;
const LARGE_FRAMES: usize = 8;
const RC_MAX_QPS: usize = 9;
const RC_MAX_CONNECTIONS: usize = 10;
const RC_IDLE_S: usize = 11;
const TRAFFIC_CLASS: usize = 12;
const SERVICE_LEVEL: usize = 13;

impl Tunable for Interface {
    const DIRECTORY: &'static CStr = c"ipoib";

    const VARIABLES: &'static [Variable] = &[
        Variable {
            name: c"reorder_window",
            min: 0,
            max: reorder::MAX_WIDTH as u32,
        },
        Variable {
            name: c"reorder_timeout_us",
            min: 0,
            max: MAX_TIMEOUT_US,
        },
        Variable {
            name: c"extensions",
            min: 0,
            max: 1,
        },
        Variable {
            name: c"rx_copybreak",
            min: 0,
            max: MAX_COPYBREAK,
        },
        Variable {
            name: c"recv_queue_size",
            min: *sizes::RANGE.start(),
            max: *sizes::RANGE.end(),
        },
        Variable {
            name: c"send_queue_size",
            min: *sizes::RANGE.start(),
            max: *sizes::RANGE.end(),
        },
        Variable {
            name: c"napi_budget",
            min: 1,
            max: napi::MAX_BUDGET,
        },
        Variable {
            name: c"icrc",
            min: 0,
            max: 1,
        },
        Variable {
            name: c"large_frames",
            min: 0,
            max: 1,
        },
        Variable {
            name: c"rc_max_qps",
            min: 1,
            max: MAX_LANES as u32,
        },
        Variable {
            name: c"rc_max_connections",
            min: 1,
            max: table::MAX as u32,
        },
        Variable {
            name: c"rc_idle_s",
            min: 1,
            max: MAX_IDLE_S,
        },
        Variable {
            name: c"traffic_class",
            min: 0,
            max: u8::MAX as u32,
        },
        Variable {
            name: c"service_level",
            min: 0,
            max: MAX_PRIORITY,
        },
    ];

    fn get(dev: &Device<Self>, id: usize) -> u32 {
        let tunables = &dev.data().get_ref().tunables;
        tunables.variable(id).map_or(0, |value| value.load(Relaxed))
    }

    fn set(dev: &Device<Self>, id: usize, value: u32, rtnl: &mut Rtnl) -> Result {
        let tunables = &dev.data().get_ref().tunables;
        let mut sizes = tunables.queue_sizes();
        match id {
            RECV_QUEUE_SIZE => {
                sizes.receive = value;
                return Self::resize(dev, sizes, rtnl);
            }
            SEND_QUEUE_SIZE => {
                sizes.send = value;
                return Self::resize(dev, sizes, rtnl);
            }
            _ => {}
        }
        let variable = tunables.variable(id).ok_or(EINVAL)?;
        let before = variable.xchg(value, Relaxed);
        match id {
            EXTENSIONS | ICRC => Self::extensions_changed(dev, rtnl),
            NAPI_BUDGET => Self::budget_changed(dev, rtnl),
            TRAFFIC_CLASS | SERVICE_LEVEL if before != value => Self::class_changed(dev, rtnl),
            LARGE_FRAMES | RC_MAX_QPS | RC_MAX_CONNECTIONS | RC_IDLE_S => {
                Self::connections_changed(dev);
            }
            _ => {}
        }
        Ok(())
    }
}
