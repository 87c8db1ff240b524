// SPDX-License-Identifier: GPL-2.0

//! Address handles.

use core::ptr::{self, NonNull};

use ipoib_sys::bindings;
use kernel::error::from_err_ptr;
use kernel::prelude::*;
use kernel::sync::Arc;

use crate::deferred::{DeferDrop, Deferred, Reserved};
use crate::gid::GidRef;
use crate::neighbour::Neighbour;
use crate::pd::Pd;
use crate::sa::{GroupRecord, Notify, PathRecord};

/// Properties of the packets that are sent with an address handle on RoCE; on InfiniBand, the subnet administrator
/// knows them.
#[derive(Clone, Copy, Debug)]
pub struct AhOptions {
    /// Hop limit or time to live; 0 would be dropped on the way.
    pub hop_limit: u8,
    /// Traffic class, or type of service.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
    /// Flow label, 20 bits; 0 for none.
    pub flow_label: u32,
}

impl Default for AhOptions {
    fn default() -> Self {
        Self {
            hop_limit: 64,
            traffic_class: 0,
            sl: 0,
            flow_label: 0,
        }
    }
}

/// An address handle: the destination of datagrams.
///
/// # Examples
///
/// `samples/ud_loopback.rs` sends to its own port.
///
/// # Invariants
///
/// `raw` is the address handle of `body`.
pub struct Ah {
    raw: NonNull<bindings::ib_ah>,
    dgid: [u8; 16],
    route: Route,
    body: Deferred<Body>,
}

/// The way of an address handle.
#[derive(Clone, Copy)]
pub enum Route {
    /// Over Ethernet.
    Roce {
        /// The Ethernet address that it sends to.
        dmac: [u8; 6],
        /// Properties of the packets that it sends.
        options: AhOptions,
    },
    /// Over InfiniBand, to another port.
    Path(PathRecord),
    /// Over InfiniBand, to a multicast group.
    Group,
}

// SAFETY: An address handle may be used by any thread, and is destroyed by the work item.
unsafe impl Send for Ah {}
// SAFETY: As above.
unsafe impl Sync for Ah {}

/// An address handle that is to be destroyed when nobody uses it any more.
///
/// # Invariants
///
/// `raw` is an address handle of `pd`, owned by this value.
struct Body {
    raw: NonNull<bindings::ib_ah>,
    neighbour: Option<Pin<KBox<Neighbour>>>,
    gid: GidRef,
    pd: Arc<Pd>,
}

// SAFETY: An address handle may be used and destroyed by any thread.
unsafe impl Send for Body {}
// SAFETY: As above.
unsafe impl Sync for Body {}

impl DeferDrop for Body {}

impl Ah {
    /// Makes an address handle that sends from `gid`, through its RoCE port, to `dgid`: a group, a neighbour, or a host
    /// behind a neighbour. `notify` is told when the neighbour gets another Ethernet address or is lost;
    /// [`Self::take_moved`] returns true then.
    ///
    /// The address in a GID that was made from one is good until the IP stack, which is asked, knows better. Any other GID
    /// has to be known to the IP stack: ask a [`NeighbourQuery`](crate::NeighbourQuery) first.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `gid` is of another device than `pd` or has an index beyond 255; `EOPNOTSUPP` if its port does
    /// not speak RoCE; `ESHUTDOWN` after the [`crate::Reaper`] was dropped; `EHOSTUNREACH`, `ENETUNREACH` and the
    /// like if the IP stack does not know the destination; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Dropping it is fine in softirq.
    pub fn new(
        pd: &Arc<Pd>,
        gid: &GidRef,
        dgid: [u8; 16],
        options: AhOptions,
        notify: Arc<dyn Notify>,
    ) -> Result<Arc<Self>> {
        if !gid.device().same(pd.device()) {
            return Err(EINVAL);
        }
        if !pd.device().is_roce(gid.port()) {
            return Err(EOPNOTSUPP);
        }
        let mut attr = roce_attributes(gid.attr(), dgid, &options)?;
        let reserved = Reserved::new(pd.deferred_drop())?;
        let neighbour = match dgid {
            [0xff, ..] => None,
            _ => Some(Neighbour::watch(gid, dgid, link_local_mac(&dgid), notify)?),
        };
        let dmac = neighbour
            .as_ref()
            .map_or_else(|| group_mac(&dgid), |neighbour| neighbour.mac());
        attr.__bindgen_anon_1.roce.dmac = dmac;
        // SAFETY: `pd` is valid, `attr` is complete and ours, and refers to a GID that is referenced.
        let raw = unsafe {
            bindings::rdma_create_ah(
                pd.as_raw(),
                &raw mut attr,
                bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE,
            )
        };
        let route = Route::Roce { dmac, options };
        // SAFETY: It was just made.
        unsafe { Self::own(raw, (reserved, neighbour), (pd, gid), dgid, route) }
    }

    /// Returns true if the IP stack has to know a GID before [`Self::new`] can make an address handle for it.
    pub fn asks_for(dgid: &[u8; 16]) -> bool {
        dgid[0] != 0xff && link_local_mac(dgid).is_none()
    }

    /// Returns true if the neighbour that it sends to has got another Ethernet address, or was lost, since this was last
    /// asked: a handle that is made now may be another one.
    pub fn take_moved(&self) -> bool {
        let neighbour = self.body.neighbour.as_ref();
        neighbour.is_some_and(|neighbour| neighbour.take_moved())
    }

    /// Makes an address handle that sends from `gid`, through its port, which is one of InfiniBand, along a path.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `gid` is of another device than `pd`; `EOPNOTSUPP` if its port is none of InfiniBand;
    /// `ESHUTDOWN` after the [`crate::Reaper`] was dropped; `ENOMEM`; whatever the device says.
    ///
    /// # Context
    ///
    /// Process context; may sleep. Dropping it is fine in softirq.
    pub fn along(pd: &Arc<Pd>, gid: &GidRef, path: &PathRecord) -> Result<Arc<Self>> {
        let reserved = Self::reserve(pd, gid)?;
        // SAFETY: Both are valid, and so is the record.
        let raw = unsafe { bindings::ipoib_rs_ah_along(pd.as_raw(), gid.as_raw(), path.as_raw()) };
        // SAFETY: It was just made.
        unsafe {
            Self::own(
                raw,
                (reserved, None),
                (pd, gid),
                path.dgid(),
                Route::Path(*path),
            )
        }
    }

    /// Makes an address handle that sends from `gid`, through its port, which is one of InfiniBand, to a multicast
    /// group.
    ///
    /// # Errors
    ///
    /// As for [`Self::along`].
    ///
    /// # Context
    ///
    /// As for [`Self::along`].
    pub fn of_group(pd: &Arc<Pd>, gid: &GidRef, group: &GroupRecord) -> Result<Arc<Self>> {
        let reserved = Self::reserve(pd, gid)?;
        // SAFETY: Both are valid, and so is the record.
        let raw =
            unsafe { bindings::ipoib_rs_ah_of_group(pd.as_raw(), gid.as_raw(), group.as_raw()) };
        // SAFETY: It was just made.
        unsafe { Self::own(raw, (reserved, None), (pd, gid), group.mgid(), Route::Group) }
    }

    fn reserve(pd: &Arc<Pd>, gid: &GidRef) -> Result<Reserved<Body>> {
        if !gid.device().same(pd.device()) {
            return Err(EINVAL);
        }
        if !pd.device().is_infiniband(gid.port()) {
            return Err(EOPNOTSUPP);
        }
        Reserved::new(pd.deferred_drop())
    }

    /// Takes ownership of what came of making an address handle.
    ///
    /// # Safety
    ///
    /// `raw` must be an error, or an address handle of the protection domain's that nobody owns.
    unsafe fn own(
        raw: *mut bindings::ib_ah,
        (reserved, neighbour): (Reserved<Body>, Option<Pin<KBox<Neighbour>>>),
        (pd, gid): (&Arc<Pd>, &GidRef),
        dgid: [u8; 16],
        route: Route,
    ) -> Result<Arc<Self>> {
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // INVARIANT: By this function's requirements.
        let body = Body {
            raw,
            neighbour,
            gid: gid.clone(),
            pd: pd.clone(),
        };
        // INVARIANT: That is the body's. If the allocation fails, the value is dropped like others.
        let ah = Self {
            raw,
            dgid,
            route,
            body: reserved.fill(body),
        };
        Ok(Arc::new(ah, GFP_KERNEL)?)
    }

    #[inline]
    pub(crate) fn as_raw(&self) -> *mut bindings::ib_ah {
        self.raw.as_ptr()
    }

    /// The protection domain that it belongs to.
    #[inline]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.body.pd
    }

    /// The GID that it sends from.
    pub fn gid(&self) -> &GidRef {
        &self.body.gid
    }

    /// The GID that it sends to.
    pub fn dgid(&self) -> [u8; 16] {
        self.dgid
    }

    /// Its way there.
    pub fn route(&self) -> &Route {
        &self.route
    }
}

/// Attributes of a handle for RoCE, but for the Ethernet address. They refer to the entry of the GID that it sends from.
///
/// # Errors
///
/// An index of the GID beyond 255.
fn roce_attributes(
    gid: &bindings::ib_gid_attr,
    dgid: [u8; 16],
    options: &AhOptions,
) -> Result<bindings::rdma_ah_attr> {
    Ok(bindings::rdma_ah_attr {
        type_: bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE,
        ah_flags: bindings::ib_ah_flags_IB_AH_GRH as u8,
        port_num: gid.port_num,
        sl: options.sl,
        grh: bindings::ib_global_route {
            sgid_attr: gid,
            sgid_index: u8::try_from(gid.index)?,
            dgid: bindings::ib_gid { raw: dgid },
            flow_label: options.flow_label & bindings::IB_GRH_FLOWLABEL_MASK,
            hop_limit: options.hop_limit,
            traffic_class: options.traffic_class,
        },
        ..Default::default()
    })
}

/// The Ethernet address of a group (RFC 2464, section 7).
fn group_mac(gid: &[u8; 16]) -> [u8; 6] {
    let [.., a, b, c, d] = *gid;
    [0x33, 0x33, a, b, c, d]
}

/// The Ethernet address in a link-local GID that was made from one, as every RoCE port's default
/// GID is (modified EUI-64, RFC 4291, appendix A). The port may have another Ethernet address since.
fn link_local_mac(gid: &[u8; 16]) -> Option<[u8; 6]> {
    match *gid {
        [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a, b, c, 0xff, 0xfe, d, e, f] => {
            Some([a ^ 2, b, c, d, e, f])
        }
        _ => None,
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        // SAFETY: Owned by the type invariant. The `Ah` is gone, and this is the work item.
        let err = unsafe {
            bindings::rdma_destroy_ah_user(
                self.raw.as_ptr(),
                bindings::rdma_destroy_ah_flags_RDMA_DESTROY_AH_SLEEPABLE,
                ptr::null_mut(),
            )
        };
        if err != 0 {
            pr_err!("address handle not destroyed: {}\n", err);
        }
    }
}

#[cfg(CONFIG_KUNIT = "y")]
#[kunit_tests(rust_rdma_ah)]
mod tests {
    use kernel::error::to_result;

    use super::*;
    use crate::fake::{Entry, Fake};

    const PEER: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 3, 4, 0xff, 0xfe, 5, 6, 7];

    /// Service level, traffic class, flow label and hop limit reach the device, each as it is.
    #[test]
    fn options_reach_the_device() -> Result {
        let gid = bindings::ib_gid_attr {
            port_num: 2,
            index: 3,
            ..Default::default()
        };
        let options = AhOptions {
            hop_limit: 9,
            traffic_class: 0xa5,
            sl: 5,
            flow_label: 0xabcde,
        };
        let attr = roce_attributes(&gid, PEER, &options)?;
        assert_eq!((attr.port_num, attr.sl), (2, 5));
        assert_eq!(attr.ah_flags, bindings::ib_ah_flags_IB_AH_GRH as u8);
        let grh = attr.grh;
        assert_eq!(
            (grh.flow_label, grh.traffic_class, grh.hop_limit),
            (0xabcde, 0xa5, 9)
        );
        assert!(ptr::eq(grh.sgid_attr, &gid));
        assert_eq!(grh.sgid_index, 3);
        // SAFETY: Every view of the union is plain bytes.
        assert_eq!(unsafe { grh.dgid.raw }, PEER);
        Ok(())
    }

    /// A label has 20 bits, and an index 8.
    #[test]
    fn what_a_header_has_no_room_for() -> Result {
        let mut gid = bindings::ib_gid_attr::default();
        let options = AhOptions {
            flow_label: u32::MAX,
            ..AhOptions::default()
        };
        gid.index = 255;
        let attr = roce_attributes(&gid, PEER, &options)?;
        assert_eq!((attr.grh.flow_label, attr.grh.sgid_index), (0xfffff, 255));
        gid.index = 256;
        assert!(roce_attributes(&gid, PEER, &options).is_err());
        Ok(())
    }

    /// Packets to a group have what the subnet administrator says of it.
    #[test]
    fn properties_of_a_group_reach_the_device() {
        let gid = bindings::ib_gid_attr {
            port_num: 2,
            index: 3,
            ..Default::default()
        };
        let group = bindings::ib_sa_mcmember_rec {
            mgid: bindings::ib_gid { raw: PEER },
            mlid: 0xc012u16.to_be(),
            rate: bindings::ib_rate_IB_RATE_20_GBPS as u8,
            sl: 5,
            traffic_class: 0xa5,
            flow_label: 0xabcdeu32.to_be(),
            hop_limit: 9,
            ..Default::default()
        };
        let mut attr = bindings::rdma_ah_attr {
            type_: bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB,
            ..Default::default()
        };
        // SAFETY: All of them are ours, and no reference is counted.
        unsafe {
            bindings::ipoib_rs_group_attributes(&raw mut attr, &raw const gid, &raw const group)
        };
        assert_eq!(
            (attr.port_num, attr.sl, attr.static_rate),
            (2, 5, group.rate)
        );
        // SAFETY: By its type, it has a LID; and every view of a GID is plain bytes.
        let (dlid, dgid) = unsafe { (attr.__bindgen_anon_1.ib.dlid, attr.grh.dgid.raw) };
        assert_eq!((dlid, dgid), (0xc012, PEER));
        assert_eq!(attr.ah_flags, bindings::ib_ah_flags_IB_AH_GRH as u8);
        let grh = attr.grh;
        assert_eq!(
            (
                grh.flow_label,
                grh.traffic_class,
                grh.hop_limit,
                grh.sgid_index
            ),
            (0xabcde, 0xa5, 9, 3)
        );
    }

    /// A path with a hop limit, as one to another subnet has, has a GRH as its record says. Others have none.
    #[test]
    fn properties_of_a_path_reach_the_device() -> Result {
        let fake = Fake::new()?;
        let device = fake.device().as_raw();
        // SAFETY: The device is nobody else's. Ports of this type have LIDs.
        unsafe { (*device).type_ = bindings::rdma_nl_dev_type_RDMA_DEVICE_TYPE_SMI };
        for hop_limit in [0, 1, 64] {
            let mut entry = Entry::new(bindings::ib_gid_attr {
                port_num: 1,
                index: 3,
                ..Default::default()
            })?;
            let mut rec = bindings::sa_path_rec {
                rec_type: bindings::sa_path_rec_type_SA_PATH_REC_TYPE_IB,
                dgid: bindings::ib_gid { raw: PEER },
                rate: bindings::ib_rate_IB_RATE_20_GBPS as u8,
                sl: 5,
                traffic_class: 0xa5,
                flow_label: 0xabcdeu32.to_be(),
                hop_limit,
                ..Default::default()
            };
            rec.__bindgen_anon_1.ib.dlid = 0x12u16.to_be();
            let mut attr = bindings::rdma_ah_attr::default();
            let entry = &raw mut *entry;
            // SAFETY: All of them are ours. The core counts references among the words in front of the GID.
            let (err, held) = unsafe {
                let gid = &raw const (*entry).gid;
                let err =
                    bindings::ipoib_rs_path_attributes(&raw mut attr, device, gid, &raw const rec);
                (err, (*entry).is_held())
            };
            to_result(err)?;
            assert_eq!((attr.port_num, attr.sl, attr.static_rate), (1, 5, rec.rate));
            // SAFETY: By its type, it has a LID.
            assert_eq!(unsafe { attr.__bindgen_anon_1.ib.dlid }, 0x12);
            let has_grh = hop_limit > 0;
            assert_eq!((attr.ah_flags, held), (u8::from(has_grh), has_grh));
            let grh = attr.grh;
            if has_grh {
                let label = (grh.flow_label, grh.traffic_class);
                assert_eq!(label, (0xabcde, 0xa5));
                assert_eq!((grh.hop_limit, grh.sgid_index), (hop_limit, 3));
                // SAFETY: Every view of the union is plain bytes.
                assert_eq!(unsafe { grh.dgid.raw }, PEER);
            }
            // SAFETY: As above; the attributes have the reference, if there is one.
            unsafe {
                bindings::rdma_destroy_ah_attr(&raw mut attr);
                assert!(!(*entry).is_held());
            }
        }
        Ok(())
    }

    /// A GID made from a MAC address names that, and others none.
    #[test]
    fn addresses_in_link_local_gids() {
        assert_eq!(link_local_mac(&PEER), Some([0, 3, 4, 5, 6, 7]));
        for at in [0, 1, 7, 11, 12] {
            let mut other = PEER;
            other[at] ^= 1;
            assert_eq!(link_local_mac(&other), None);
        }
    }

    /// A group's frames are sent to the Ethernet address that its last four bytes are in.
    #[test]
    fn addresses_of_groups() {
        let mut group = [0; 16];
        group[0] = 0xff;
        group[12..].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(group_mac(&group), [0x33, 0x33, 1, 2, 3, 4]);
        assert!(!Ah::asks_for(&group) && !Ah::asks_for(&PEER));
        assert!(Ah::asks_for(&[
            0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5
        ]));
    }
}
