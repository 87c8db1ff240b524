// SPDX-License-Identifier: GPL-2.0

//! `ip link add … type ipoib_rs`: the rtnl kind and its attributes.

use ipoib_netdev::device::Device;
use ipoib_netdev::link::{Attributes, Extack, Link, Message, Registration, Request};
use ipoib_netdev::modes::Modes;
use ipoib_netdev::rtnl::Rtnl;
use ipoib_proto::mtu;
use ipoib_proto::pkey::PKey;
use ipoib_proto::sizes::Sizes;
use ipoib_rdma::Device as RdmaDevice;
use kernel::prelude::*;
use kernel::str::CStr;
use kernel::sync::atomic::Relaxed;

use crate::base::interface::{Interface, Options};
use crate::base::params;
use crate::ctl::{changes, ports};

// Attributes, as in <linux/if_link.h>. The comments stand in Documentation/ as well.

/// P_Key of the partition, of which the port has to be a member; the full-member bit is always set.
const PKEY: u16 = 1;
/// How unicast frames travel: as datagrams (the default), or by reliable connections.
const MODE: u16 = 2;
/// 1: multicast groups that user space has joined on the port's netdev are left to it.
const UMCAST: u16 = 3;

/// An attribute: number, check of its value, text of the refusal.
type Attribute = (u16, fn(u16) -> bool, &'static CStr);

const ATTRIBUTES: [Attribute; 3] = [
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

/// Checks that an RDMA device has what an interface needs.
fn check_device(device: &RdmaDevice, extack: &Extack<'_>) -> Result {
    if !device.has_multicast() {
        return Err(extack.refuse(
            c"The RDMA device has no multicast, without which there is no link",
            EOPNOTSUPP,
        ));
    }
    if Sizes::first(params::queue_sizes(), device.max_queue()).is_none() {
        return Err(extack.refuse(c"The RDMA device has no queues of 64 requests", EINVAL));
    }
    Ok(())
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
impl Modes for Interface {
    fn mode(dev: &Device<Self>) -> &'static CStr {
        if dev.data().is_connected() {
            c"connected"
        } else {
            c"datagram"
        }
    }

    fn set_mode(dev: &Device<Self>, mode: &[u8], rtnl: &mut Rtnl) -> Result {
        match mode {
            b"datagram" => Self::set_connected(dev, false, rtnl),
            b"connected" => Self::set_connected(dev, true, rtnl),
            _ => Err(EINVAL),
        }
    }
}

#[vtable]
impl Link for Interface {
    const ATTRIBUTES: u16 = ATTRIBUTES.len() as u16;

    fn validate(attributes: &Attributes<'_>, extack: &Extack<'_>) -> Result {
        for (kind, is_valid, refusal) in ATTRIBUTES {
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
        let Some(lower) = request.lower else {
            return Err(extack.refuse(
                c"Name the RDMA port: ip link add link <netdev> ... type ipoib_rs",
                EINVAL,
            ));
        };
        let Some((port, parent)) = ports::find(lower, rtnl) else {
            return Err(extack.refuse(
                c"The link is neither the netdev of a RoCE port nor an IPoIB interface",
                ENODEV,
            ));
        };
        if parent.as_ref().is_some_and(|dev| dev.data().is_child()) {
            return Err(extack.refuse(c"A P_Key child cannot have children", EINVAL));
        }
        let pkey = match attributes.get(PKEY) {
            None => parent.as_ref().map_or(PKey::DEFAULT, |dev| dev.data().pkey),
            Some(raw) => PKey::new(raw).ok_or(EINVAL)?.to_full(),
        };
        let device = port.device();
        // On InfiniBand, the subnet manager may yet make it one.
        if port.find_pkey(pkey).is_err() && !port.is_infiniband() {
            return Err(extack.refuse(c"The port is not a member of this partition", EINVAL));
        }
        check_device(device, extack)?;
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
        if let Some(pkey) = attributes.get(PKEY) {
            if PKey::new(pkey).map(PKey::to_full) != Some(this.pkey) {
                return Err(
                    extack.refuse(c"The P_Key of an interface cannot be changed", EOPNOTSUPP)
                );
            }
        }
        if let Some(mode) = attributes.get(MODE) {
            Self::set_connected(dev, mode == MODE_CONNECTED, rtnl).map_err(|error| {
                extack.refuse(
                    c"The RDMA device cannot run this mode; the mode is unchanged",
                    error,
                )
            })?;
        }
        if let Some(umcast) = attributes.get(UMCAST) {
            if this.umcast.xchg(umcast != 0, Relaxed) != (umcast != 0) {
                changes::rejoin(dev);
            }
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
        message.put(PKEY, this.pkey.get())?;
        let mode = if this.is_connected() {
            MODE_CONNECTED
        } else {
            MODE_DATAGRAM
        };
        message.put(MODE, mode)?;
        message.put(UMCAST, u16::from(this.umcast.load(Relaxed)))
    }
}
