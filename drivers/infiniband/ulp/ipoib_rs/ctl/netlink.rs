// SPDX-License-Identifier: GPL-2.0

//! `ip link add … type ipoib_rs`: the rtnl kind and its attributes.

use ipoib_netdev::device::{Device, OwnedDevice};
use ipoib_netdev::link::{Attributes, Extack, Link, Message, Policy, Registration, Request, Text};
use ipoib_netdev::link_attributes;
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

const MODE_DATAGRAM: u16 = 0;
const MODE_CONNECTED: u16 = 1;

// Numbers as in <linux/if_link.h>. Those of attributes that it does not have are far from those that it may yet get. The
// comments stand in Documentation/ as well.
link_attributes! {
    /// P_Key of the partition, of which the port has to be a member; the full-member bit is always set.
    pkey: u16 = 1,
        if |pkey| PKey::new(pkey).is_some(),
        else c"P_Key must not be 0x0000 or 0x8000";

    /// How unicast frames travel: as datagrams (the default), or by reliable connections.
    mode: u16 = 2,
        if |mode| matches!(mode, MODE_DATAGRAM | MODE_CONNECTED),
        else c"The mode must be 0 (datagram) or 1 (connected)";

    /// 1: multicast groups that user space has joined on the port or its netdev are left to it.
    umcast: u16 = 3;

    /// The name of the RDMA device, where no network interface stands for its port.
    device: Text<{ NAME_LEN as u16 - 1 }> = 32;

    /// The number of the RDMA device's port, from 1; not needed where the device has one only.
    port: u32 = 33;
}

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
fn choose(request: &Request<'_>, asked: &Asked<'_>, rtnl: &mut Rtnl) -> Result<Place> {
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
    let named = named(request, asked, rtnl)?;
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
fn named(request: &Request<'_>, asked: &Asked<'_>, rtnl: &mut Rtnl) -> Result<Option<Arc<Port>>> {
    let &Request { extack, net, .. } = request;
    let number = asked.port;
    let Some(name) = asked.device else {
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
    if !found.device().may_configure() {
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

/// Checks the MTU of a new interface on a port whose largest IB MTU is `ib_mtu`.
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
    const ATTRIBUTES: Policy = Asked::POLICY;

    fn validate(attributes: &Attributes<'_>, extack: &Extack<'_>) -> Result {
        let checked = Asked::new(attributes).check();
        checked.map_err(|refusal| extack.refuse(refusal, EINVAL))
    }

    fn create(request: &Request<'_>, rtnl: &mut Rtnl) -> Result<impl PinInit<Self, Error>> {
        let extack = request.extack;
        let asked = Asked::new(request.attributes);
        let (port, parent) = choose(request, &asked, rtnl)?;
        if parent.as_ref().is_some_and(|dev| dev.data().is_child()) {
            return Err(extack.refuse(c"A P_Key child cannot have children", EINVAL));
        }
        let pkey = match asked.pkey {
            None => parent.as_ref().map(|dev| dev.data().pkey()),
            Some(raw) => Some(PKey::new(raw).ok_or(EINVAL)?.to_full()),
        };
        if pkey.is_some_and(|pkey| !may_be_member(&port, pkey)) {
            return Err(extack.refuse(c"The port is not a member of this partition", EINVAL));
        }
        check_device(port.device()).map_err(|(text, error)| extack.refuse(text, error))?;
        let connected = asked.mode == Some(MODE_CONNECTED);
        if let Some(mtu) = request.mtu {
            check_mtu(mtu, connected, port.attributes(rtnl).max_ib_mtu, extack)?;
        }
        let umcast = asked.umcast.unwrap_or(0) != 0;
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
        let asked = Asked::new(attributes);
        let moves = asked
            .device
            .is_some_and(|name| !port.shared().is_called(name))
            || asked.port.is_some_and(|number| number != port.number());
        if moves {
            return Err(extack.refuse(
                c"The RDMA port of an interface cannot be changed",
                EOPNOTSUPP,
            ));
        }
        if let Some(pkey) = asked.pkey {
            if PKey::new(pkey).map(PKey::to_full) != Some(this.pkey()) {
                return Err(
                    extack.refuse(c"The P_Key of an interface cannot be changed", EOPNOTSUPP)
                );
            }
        }
        if let Some(mode) = asked.mode {
            Self::set_connected(dev, mode == MODE_CONNECTED, rtnl).map_err(|error| {
                extack.refuse(c"The mode is unchanged; the kernel log says why", error)
            })?;
        }
        if let Some(umcast) = asked.umcast {
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
        let mode = if this.is_connected() {
            MODE_CONNECTED
        } else {
            MODE_DATAGRAM
        };
        this.port.shared().with_name(|name| {
            let told = Told {
                pkey: this.pkey().get(),
                mode,
                umcast: u16::from(this.umcast.load(Relaxed)),
                device: name,
                port: this.port.number(),
            };
            told.fill(message)
        })
    }
}
