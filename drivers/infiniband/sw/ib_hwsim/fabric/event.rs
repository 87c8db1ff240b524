// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events of a port (section 11.6.3 and those that subnet management brings).

/// An event that the driver reports to RDMA core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Event {
    /// The port went to Active.
    PortActive = 1 << 0,
    /// The port left Armed or Active.
    PortError = 1 << 1,
    /// The LID or the LMC is another.
    LidChange = 1 << 2,
    /// The master subnet manager has another LID or service level.
    SmChange = 1 << 3,
    /// The subnet manager asks for all subscriptions anew, such as multicast joins.
    ClientReregister = 1 << 4,
    /// The P_Key table is another.
    PKeyChange = 1 << 5,
    /// The subnet prefix or the GUID table is another.
    GidChange = 1 << 6,
    /// The speed of the link is another.
    SpeedChange = 1 << 7,
    /// The device has failed; it is an event of all its ports.
    DeviceFatal = 1 << 8,
}

impl Event {
    /// All events, in the order in which they are to be reported: tables and addresses before
    /// the state that makes them usable.
    pub const ALL: [Event; 9] = [
        Event::PortError,
        Event::GidChange,
        Event::PKeyChange,
        Event::LidChange,
        Event::SmChange,
        Event::ClientReregister,
        Event::SpeedChange,
        Event::PortActive,
        Event::DeviceFatal,
    ];
}

/// A set of events, all of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(u16);

impl Events {
    /// The empty set.
    pub const NONE: Events = Events(0);

    /// Returns true if the event is in the set.
    #[inline]
    pub const fn contains(self, event: Event) -> bool {
        self.0 & event as u16 != 0
    }

    /// Returns true if the set is empty.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the events in the order of [`Event::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Event> {
        Event::ALL
            .into_iter()
            .filter(move |&event| self.contains(event))
    }

    /// Adds the event if `happened`.
    pub(crate) fn add_if(&mut self, happened: bool, event: Event) {
        if happened {
            self.0 |= event as u16;
        }
    }
}

impl From<Event> for Events {
    #[inline]
    fn from(event: Event) -> Events {
        Events(event as u16)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_event))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn set_of_events() {
        let mut events = Events::NONE;
        assert!(events.is_empty());
        events.add_if(true, Event::PortActive);
        events.add_if(true, Event::LidChange);
        events.add_if(false, Event::PKeyChange);
        assert!(events.contains(Event::PortActive));
        assert!(!events.contains(Event::PKeyChange));
        assert!(events.iter().eq([Event::LidChange, Event::PortActive]));
        assert_eq!(Events::from(Event::LidChange).iter().count(), 1);
    }

    #[test]
    fn all_are_distinct() {
        let mut all = Events::NONE;
        for event in Event::ALL {
            assert!(!all.contains(event));
            all.add_if(true, event);
        }
        assert_eq!(all.iter().count(), 9);
    }
}
