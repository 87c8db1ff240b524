// SPDX-License-Identifier: GPL-2.0

//! Settings of an interface that can be changed while it runs: `net.ipoib.<interface>.*`.

use core::ops::RangeInclusive;

use ipoib_netdev::ethtool::Moderation;
use ipoib_netdev::napi;
use ipoib_netdev::relaxed::Relax;
use ipoib_netdev::sysctl::Variable;
use ipoib_proto::cm::MAX_CHANNELS;
use ipoib_proto::reorder;
use ipoib_proto::sizes::Sizes;
use kernel::c_str;
use kernel::sync::atomic::Atomic;

use crate::base::params;

/// Action that a change of a setting needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// None: the setting is read whenever it is needed.
    Immediate,
    /// The interface's address and its connections are made anew.
    Extensions,
    /// The receive NAPI gets another budget.
    Budget,
    /// All connections end, and new ones are made.
    Connections,
    /// The interface restarts.
    Class,
}

/// Declares all settings: type, limits, default, and what a change needs. The first paragraph of each comment
/// stands in Documentation/ as well.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $name:ident: $type:ident in $min:literal..=$max:literal, default $default:expr => $effect:ident;
    )*) => {
        /// Values, written under RTNL and read in any context.
        pub(crate) struct Settings {
            $($(#[$doc])* $name: Atomic<u32>,)*
            receive: Atomic<u32>,
            send: Atomic<u32>,
            max_receive: Atomic<u32>,
            max_send: Atomic<u32>,
            rx_usecs: Atomic<u32>,
            rx_frames: Atomic<u32>,
        }

        impl Settings {
            /// Sysctls, in the order of [`Settings::get`].
            pub(crate) const VARIABLES: &[Variable] = &[$(Variable {
                name: c_str!(stringify!($name)),
                min: *limits::$name.start(),
                max: *limits::$name.end(),
            },)*];

            /// The defaults.
            pub(crate) fn new() -> Self {
                let sizes = params::queue_sizes();
                Self {
                    $($name: Atomic::new($default),)*
                    receive: Atomic::new(sizes.receive),
                    send: Atomic::new(sizes.send),
                    max_receive: Atomic::new(sizes.receive),
                    max_send: Atomic::new(sizes.send),
                    rx_usecs: Atomic::new(0),
                    rx_frames: Atomic::new(0),
                }
            }

            /// The setting at `index` of [`Settings::VARIABLES`].
            pub(crate) fn get(&self, index: usize) -> Option<(&Atomic<u32>, Effect)> {
                [$((&self.$name, Effect::$effect)),*].get(index).copied()
            }

            /// The setting at `index`, as the driver reads it.
            #[cfg(CONFIG_KUNIT = "y")]
            fn read(&self, index: usize) -> Option<u32> {
                [$(u32::from(self.$name())),*].get(index).copied()
            }

            $(
                $(#[$doc])*
                #[inline]
                pub(crate) fn $name(&self) -> $type {
                    settings!(@$type self.$name.get())
                }
            )*
        }

        /// Limits by name.
        #[allow(non_upper_case_globals)]
        mod limits {
            use super::RangeInclusive;

            $(pub(super) const $name: RangeInclusive<u32> = $min..=$max;)*
        }
    };
    (@u32 $value:expr) => { $value };
    (@u8 $value:expr) => { $value as u8 };
    (@bool $value:expr) => { $value != 0 };
}

settings! {
    /// Frames that a source may be ahead by; 0 passes frames up as they come.
    ///
    /// The default is half a NAPI budget.
    reorder_window: u8 in 0..=128, default 32 => Immediate;

    /// The longest time that a frame is held, in microseconds. If more completions are pending then, frames are held once
    /// more as long, and at least 1000. 0: until the end of the poll that it came in.
    ///
    /// The paths of a fabric differ by much less than the default, but on a busy host it can take milliseconds
    /// until the one that is waited for is polled. TCP waits for an acknowledgement for much longer; its shortest
    /// retransmission timeout is not far above the maximum.
    reorder_timeout_us: u32 in 0..=100_000, default 5_000 => Immediate;

    /// 0: no numbers, and an address that asks for none; every byte on the wire is RFC 4391's.
    extensions: bool in 0..=1, default 1 => Extensions;

    /// Frames of up to so many bytes are copied out of their buffer, which goes back to its pool.
    ///
    /// To copy more than the maximum costs more than a new buffer.
    rx_copybreak: u32 in 0..=2048, default 0 => Immediate;

    /// Frames that a receive poll takes at a time.
    napi_budget: u32 in 1..=64, default 64 => Budget;

    /// 0: checksums of TCP and UDP are computed and verified on connections.
    icrc: bool in 0..=1, default 1 => Extensions;

    /// 0: packets are segmented before they are sent on a connection.
    large_frames: bool in 0..=1, default 1 => Connections;

    /// Connections to one peer; flows are spread over them.
    rc_max_qps: u8 in 1..=8, default 1 => Connections;

    /// Connections that the interface sends by; the least recently used one makes room.
    rc_max_connections: u32 in 1..=64, default 64 => Connections;

    /// Seconds without a frame after which a connection is closed.
    rc_idle_s: u32 in 1..=86_400, default 60 => Connections;

    /// Traffic class of packets on RoCE ports: DSCP in the upper six bits, ECN in the lower two.
    traffic_class: u8 in 0..=255, default 0 => Class;

    /// Service level of packets on RoCE ports: the Ethernet priority.
    service_level: u8 in 0..=7, default 0 => Class;
}

// The limits are those of the code below.
const _: () = {
    assert!(*limits::reorder_window.end() == reorder::MAX_WIDTH as u32);
    assert!(*limits::napi_budget.end() == napi::MAX_BUDGET);
    assert!(*limits::rc_max_qps.end() == MAX_CHANNELS as u32);
};

/// Limit of connections with peers that an interface sends to.
pub(crate) const MAX_CONNECTIONS: usize = *limits::rc_max_connections.end() as usize;

impl Settings {
    /// Frames in the rings, as `ethtool -G` sets them.
    pub(crate) fn queue_sizes(&self) -> Sizes {
        Sizes {
            receive: self.receive.get(),
            send: self.send.get(),
        }
    }

    /// Stores sizes that were found good.
    pub(crate) fn set_queue_sizes(&self, sizes: Sizes) {
        self.receive.set(sizes.receive);
        self.send.set(sizes.send);
    }

    /// Work requests that the queues have room for, and so the most that the rings can hold.
    pub(crate) fn queue_limits(&self) -> Sizes {
        Sizes {
            receive: self.max_receive.get(),
            send: self.max_send.get(),
        }
    }

    /// Stores the room that the queues have. True if the rings had to become smaller.
    pub(crate) fn set_queue_limits(&self, limits: Sizes) -> bool {
        self.max_receive.set(limits.receive);
        self.max_send.set(limits.send);
        let sizes = self.queue_sizes();
        let fitting = sizes.min(limits);
        self.set_queue_sizes(fitting);
        fitting != sizes
    }

    /// Moderation of receive completions; all 0: each is reported at once.
    pub(crate) fn moderation(&self) -> Moderation {
        // Stored from numbers of 16 bits.
        Moderation {
            usecs: self.rx_usecs.get() as u16,
            frames: self.rx_frames.get() as u16,
        }
    }

    /// Stores what the device does now.
    pub(crate) fn set_moderation(&self, moderation: Moderation) {
        self.rx_usecs.set(moderation.usecs.into());
        self.rx_frames.set(moderation.frames.into());
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kernel::prelude::kunit_tests(ipoib_rs_settings)]
mod tests {
    use super::*;
    use kernel::prelude::*;

    /// Each takes its limits and all between, among which is its default, and nothing beyond.
    #[test]
    fn settings_have_limits() -> Result {
        let settings = Settings::new();
        for (index, variable) in Settings::VARIABLES.iter().enumerate() {
            let (min, max) = (i64::from(variable.min), i64::from(variable.max));
            let (setting, _) = settings.get(index).ok_or(EINVAL)?;
            let default = i64::from(setting.get());
            for value in [min, default, max] {
                assert_eq!(variable.written(value).map(i64::from), Ok(value));
            }
            for value in [min - 1, max + 1] {
                assert_eq!(variable.written(value), Err(EINVAL));
            }
        }
        Ok(())
    }

    /// The driver reads the value that was set: no limit is beyond the type of its setting.
    #[test]
    fn settings_hold_their_limits() -> Result {
        let settings = Settings::new();
        for (index, variable) in Settings::VARIABLES.iter().enumerate() {
            for value in [variable.min, variable.max] {
                settings.get(index).ok_or(EINVAL)?.0.set(value);
                assert_eq!(settings.read(index), Some(value));
            }
        }
        Ok(())
    }
}
