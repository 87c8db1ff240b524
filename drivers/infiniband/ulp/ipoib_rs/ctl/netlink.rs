// SPDX-License-Identifier: GPL-2.0

//! `ip link add … type ipoib_rs`: the rtnl kind and its attributes.

use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_netdev::link::{Attributes, Extack, Link, Message, Policy, Registration, Request, Type};
use ipoib_netdev::rtnl::Rtnl;
use ipoib_proto::mtu;
use ipoib_proto::pkey::PKey;
use ipoib_proto::sizes::Sizes;
use ipoib_rdma::device::NAME_LEN;
use ipoib_rdma::Device as RdmaDevice;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use crate::base::interface::{Interface, Options, Origin};
use crate::base::params;
use crate::base::port::Port;
use crate::ctl::ports::Missing;
use crate::ctl::{changes, ports};

// Attributes, as in <linux/if_link.h>. The comments stand in Documentation/ as well.

/// P_Key of the partition, of which the port has to be a member; the full-member bit is always set.
const PKEY: u16 = 1;
/// How unicast frames travel: as datagrams (the default), or by reliable connections.
const MODE: u16 = 2;
/// 1: multicast groups that user space has joined on the port's netdev are left to it.
const UMCAST: u16 = 3;

// Those that <linux/if_link.h> does not have are far from those that it may yet get.

/// The name of the RDMA device, where no network interface stands for its port.
const DEVICE: u16 = 32;
/// The number of the RDMA device's port, from 1; not needed where the device has one only.
const PORT: u16 = 33;

/// A check of an attribute: number, what its value has to be, text of the refusal.
type Check = (u16, fn(u16) -> bool, &'static CStr);

const CHECKS: [Check; 3] = [
    (
        PKEY,
        |pkey| PKey::new(pkey).is_some(),
        c"P_Key must not be 0x0000 or 0x8000",
    ),
    (
        MODE,
        |mode| matches!(mode, MODE_DATAGRAM | MODE_CONNECTED),
        c"The mode must be 0 (datagram) or 1 (connected)",
    ),
    (UMCAST, |umcast| umcast <= 1, c"umcast must be 0 or 1"),
];

const MODE_DATAGRAM: u16 = 0;
const MODE_CONNECTED: u16 = 1;

/// Registers the kind `ipoib_rs`, and with `replace=1` also `ipoib`, the C driver's.
///
/// # Errors
///
/// Those of [`Registration::new`], with a line in the log where another driver has `ipoib`.
pub(crate) fn register() -> Result<KVec<Registration<Interface>>> {
    let mut kinds = KVec::with_capacity(2, GFP_KERNEL)?;
    kinds.push(Registration::new(c"ipoib_rs")?, GFP_KERNEL)?;
    if params::replace() {
        let kind = Registration::new(c"ipoib").inspect_err(|error| {
            if *error == EEXIST {
                pr_err!("replace=1: another driver has the link type ipoib; run modprobe -r ib_ipoib, or load without replace=1\n");
            }
        })?;
        kinds.push(kind, GFP_KERNEL)?;
    }
    Ok(kinds)
}

/// The port that a new interface is to use, and the interface that it is to be a P_Key child of.
type Place = (Arc<Port>, Option<OwnedDevice<Interface>>);

/// Chooses the port by `link` or by name; both may be given if they agree.
fn choose(request: &Request<'_>, rtnl: &mut Rtnl) -> Result<Place> {
    let extack = request.extack;
    let by_link = request.lower.map(|lower| {
        ports::find(lower, rtnl).ok_or_else(|| {
            extack.refuse(
                c"The link is neither a RoCE port's netdev nor an IPoIB interface",
                ENODEV,
            )
        })
    });
    let by_link = by_link.transpose()?;
    let named = named(request, rtnl)?;
    match (by_link, named) {
        (Some((port, _)), Some(named)) if !Arc::ptr_eq(&port, &named) => {
            Err(extack.refuse(c"The link and the device name different RDMA ports", EINVAL))
        }
        (Some(place), _) => Ok(place),
        (None, Some(named)) => Ok((named, None)),
        (None, None) => Err(extack.refuse(
            c"Specify link IFNAME, or device RDMADEV [ port NUMBER ]",
            EINVAL,
        )),
    }
}

/// The port that is named, if one is.
fn named(request: &Request<'_>, rtnl: &mut Rtnl) -> Result<Option<Arc<Port>>> {
    let &Request {
        attributes,
        extack,
        net,
        ..
    } = request;
    let number = attributes.get_u32(PORT);
    let Some(name) = attributes.get_text(DEVICE) else {
        if number.is_some() {
            return Err(extack.refuse(c"A port requires a device", EINVAL));
        }
        return Ok(None);
    };
    let found = ports::find_named(name, number, net, rtnl).map_err(|missing| match missing {
        Missing::Device => extack.refuse(c"No usable RDMA device has that name", ENODEV),
        Missing::Port => {
            extack.refuse(c"The RDMA device has no usable port of that number", ENODEV)
        }
        Missing::Ambiguous => {
            extack.refuse(c"The RDMA device has several ports; specify one", EINVAL)
        }
    })?;
    if !found.device().may_configure(net) {
        return Err(extack.refuse(
            c"The RDMA device belongs to another network namespace",
            EPERM,
        ));
    }
    Ok(Some(found))
}

/// Checks that an RDMA device has what an interface needs.
///
/// # Errors
///
/// A capability that it lacks, and the error for that.
pub(super) fn check_device(device: &RdmaDevice) -> Result<(), (&'static CStr, Error)> {
    if !device.has_multicast() {
        return Err((c"The RDMA device does not support multicast", EOPNOTSUPP));
    }
    if Sizes::first(params::queue_sizes(), device.max_queue()).is_none() {
        return Err((c"The RDMA device has no queues of 64 requests", EINVAL));
    }
    Ok(())
}

/// Returns true if the port is a member of a partition. On InfiniBand, the subnet manager may yet make it one.
pub(super) fn may_be_member(port: &Port, pkey: PKey) -> bool {
    port.is_infiniband() || port.find_pkey(pkey).is_ok()
}

/// Checks the MTU of a new interface on a port of `ib_mtu`.
fn check_mtu(mtu: u32, connected: bool, ib_mtu: u32, extack: &Extack<'_>) -> Result {
    if connected && mtu > mtu::MAX_CONNECTED {
        return Err(extack.refuse(c"MTU is above 65520", EINVAL));
    }
    match mtu::check(mtu, ib_mtu) {
        Err(error) if !connected || mtu < mtu::MIN_IPV4 => {
            Err(extack.refuse(error.message(), EINVAL))
        }
        _ => Ok(()),
    }
}

#[vtable]
impl Link for Interface {
    const ATTRIBUTES: Policy = &[
        (PKEY, Type::U16),
        (MODE, Type::U16),
        (UMCAST, Type::U16),
        (DEVICE, Type::Text(NAME_LEN as u16 - 1)),
        (PORT, Type::U32),
    ];

    fn validate(attributes: &Attributes<'_>, extack: &Extack<'_>) -> Result {
        for (kind, is_valid, refusal) in CHECKS {
            if attributes.get(kind).is_some_and(|value| !is_valid(value)) {
                return Err(extack.refuse(refusal, EINVAL));
            }
        }
        Ok(())
    }

    fn create(request: &Request<'_>, rtnl: &mut Rtnl) -> Result<impl PinInit<Self, Error>> {
        let Request {
            attributes, extack, ..
        } = request;
        let (port, parent) = choose(request, rtnl)?;
        if parent.as_ref().is_some_and(|dev| dev.data().is_child()) {
            return Err(extack.refuse(c"A P_Key child cannot have children", EINVAL));
        }
        let pkey = match attributes.get(PKEY) {
            None => parent.as_ref().map(|dev| dev.data().pkey()),
            Some(raw) => Some(PKey::new(raw).ok_or(EINVAL)?.to_full()),
        };
        if pkey.is_some_and(|pkey| !may_be_member(&port, pkey)) {
            return Err(extack.refuse(c"The port is not a member of this partition", EINVAL));
        }
        check_device(port.device()).map_err(|(text, error)| extack.refuse(text, error))?;
        let connected = attributes.get(MODE) == Some(MODE_CONNECTED);
        if let Some(mtu) = request.mtu {
            check_mtu(mtu, connected, port.attributes(rtnl).ib_mtu, extack)?;
        }
        let umcast = attributes.get(UMCAST).unwrap_or(0) != 0;
        let parent = parent.as_deref();
        Interface::new(
            port,
            &Options {
                parent,
                pkey,
                mtu: request.mtu,
                umcast,
                connected,
                origin: Origin::Link,
            },
        )
    }

    fn change(
        dev: &Device<Self>,
        attributes: &Attributes<'_>,
        extack: &Extack<'_>,
        rtnl: &mut Rtnl,
    ) -> Result {
        let this = dev.data();
        let port = &this.port;
        let moves = attributes
            .get_text(DEVICE)
            .is_some_and(|name| !port.shared().is_called(name))
            || attributes
                .get_u32(PORT)
                .is_some_and(|number| number != port.number());
        if moves {
            return Err(extack.refuse(
                c"The RDMA port of an interface cannot be changed",
                EOPNOTSUPP,
            ));
        }
        if let Some(pkey) = attributes.get(PKEY) {
            if PKey::new(pkey).map(PKey::to_full) != Some(this.pkey()) {
                return Err(
                    extack.refuse(c"The P_Key of an interface cannot be changed", EOPNOTSUPP)
                );
            }
        }
        if let Some(mode) = attributes.get(MODE) {
            Self::set_connected(dev, mode == MODE_CONNECTED, rtnl).map_err(|error| {
                extack.refuse(c"The mode is unchanged; the kernel log says why", error)
            })?;
        }
        if let Some(umcast) = attributes.get(UMCAST) {
            changes::set_umcast(dev, umcast != 0);
        }
        Ok(())
    }

    fn dependents(dev: &Device<Self>, rtnl: &mut Rtnl, f: &mut dyn FnMut(&Device<Self>)) {
        ports::for_each_beside(dev, rtnl, &mut |other| {
            if other.data().is_child_of(dev) {
                f(other);
            }
        });
    }

    fn describe(dev: &Device<Self>, message: &mut Message<'_>) -> Result {
        let this = dev.data();
        message.put(PKEY, this.pkey().get())?;
        let mode = if this.is_connected() {
            MODE_CONNECTED
        } else {
            MODE_DATAGRAM
        };
        message.put(MODE, mode)?;
        message.put(UMCAST, u16::from(this.umcast.load(Relaxed)))?;
        this.port
            .shared()
            .with_name(|name| message.put_text(DEVICE, name))?;
        message.put_u32(PORT, this.port.number())
    }
}
