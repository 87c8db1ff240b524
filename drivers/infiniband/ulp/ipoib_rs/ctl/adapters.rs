// SPDX-License-Identifier: GPL-2.0

//! RDMA devices as they come and go, and what happens to them and to the network devices around.

use ipoib_netdev::device::RawDevice;
use ipoib_netdev::notifier;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_netdev::task::{Queue, Run};
use ipoib_rdma::{Client, Device as RdmaDevice, EventHandler, Found, Sought};
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::Interface;
use crate::base::port::{Refresh, Refresher};
use crate::base::shared::Shared;
use crate::ctl::members::Members;
use crate::ctl::{children, ports};

/// Milliseconds until what memory was short for is tried again.
const RETRY_MS: u32 = 1000;

impl Run for Refresh {
    fn run(&self, task: &Queue<'_>) {
        if ports::refresh(&self.device).is_err() {
            task.queue(RETRY_MS);
        }
    }
}

/// Our side of an RDMA device.
#[pin_data]
pub(crate) struct Adapter {
    device: RdmaDevice,
    refresher: Arc<Refresher>,
    shared: Arc<Shared>,
    members: Arc<Members>,
    #[pin]
    _events: EventHandler<Refresher>,
}

/// The RDMA client.
pub(crate) struct Adapters;

impl Client for Adapters {
    type Data = Adapter;
    const NAME: &'static CStr = c"ipoib_rs";

    fn add(device: &RdmaDevice, name: &CStr) -> Result<Arc<Adapter>> {
        let refresher = Refresher::new(device)?;
        let shared = Shared::new(name)?;
        let members = Members::new()?;
        let (own, sink) = (refresher.clone(), refresher.clone());
        ports::add_ports(device, &refresher, &shared, &members)
            .and_then(|()| {
                Arc::pin_init(
                    try_pin_init!(Adapter {
                        device: device.clone(),
                        refresher: own,
                        shared,
                        members,
                        _events <- EventHandler::new(device, sink),
                    }),
                    GFP_KERNEL,
                )
            })
            .inspect(|_| {
                children::serve(Some(device), &mut Rtnl::lock());
                // Changes from before the handler was there are seen now.
                refresher.queue(0);
            })
            .inspect_err(|_| ports::forget(device, &refresher))
    }

    fn renamed(adapter: &Adapter, name: &CStr) {
        adapter.shared.renamed(name);
        // A port of that name may be one that gets an interface by itself.
        children::tend_soon(&mut Rtnl::lock());
    }

    fn interface(adapter: &Adapter, sought: &Sought<'_>) -> Option<Found> {
        adapter.members.find(sought)
    }

    fn remove(adapter: Arc<Adapter>) {
        ports::forget(&adapter.device, &adapter.refresher);
    }
}

/// Watches network devices: those under RoCE ports, and whether interfaces of ours are taken up or down, which their
/// children follow, or into another namespace, or can send, or were given another broadcast address.
///
/// Events of the RDMA device do not say all of a RoCE port. Soft-RoCE tells nobody of its MTU. The RDMA core tells of a
/// port's state only where that differs from the state that it saw last; the carrier of a network device changes at
/// once, and the core hears of it up to a second later. If a port is read while the carrier is away, and the carrier is
/// back before the core looks, there is no event.
pub(crate) struct Watch;

impl notifier::Listen for Watch {
    fn event(&self, dev: &RawDevice, event: notifier::Event, rtnl: &mut Rtnl) {
        let own = ports::own(dev, rtnl);
        match event {
            notifier::Event::Registered => {
                if let Some(own) = own {
                    // IPv6 has just begun on it.
                    own.data().identified.store(0, Relaxed);
                    Interface::identify(&own, rtnl);
                }
                return ports::note_ifindex(dev, rtnl);
            }
            notifier::Event::Up => children::follow(dev, true, rtnl),
            notifier::Event::Down => children::follow(dev, false, rtnl),
            notifier::Event::MtuChanged => {
                if let Some(own) = own {
                    Interface::identify(&own, rtnl);
                }
            }
            notifier::Event::Changed => {
                if let Some(own) = own {
                    Interface::announce(&own, rtnl);
                }
            }
            notifier::Event::Readdressed => {
                if let Some(own) = own {
                    Interface::follow_broadcast(&own, rtnl);
                    Interface::identify(&own, rtnl);
                }
                return;
            }
            notifier::Event::Renamed | notifier::Event::Unregistered => return,
        }
        ports::refresh_on(dev, rtnl);
    }
}
