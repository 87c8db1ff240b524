// SPDX-License-Identifier: GPL-2.0

//! Datagrams from the UD queue pair, checked once, here, before anything else reads them.
//!
//! A UD receive buffer begins with 40 bytes that the device fills: the GRH, or on RoCEv2 the IP
//! header that the packet came with, or nothing useful if the packet had no GRH. The payload
//! follows at a fixed place either way (RFC 4391, section 6, wants both forms accepted).

use crate::drop::DropReason;
use crate::wire::gid::Gid;
use crate::wire::header::{EtherType, Header};
use crate::wire::hwaddr::{Flags, HwAddr, Qpn};
use crate::wire::mgid::Mgid;

/// The length of the GRH area in bytes.
pub const GRH_LEN: usize = 40;

/// Where the IP packet begins in a receive buffer, in bytes.
pub const PAYLOAD_OFFSET: usize = GRH_LEN + Header::LEN;

/// Where an IPv4 header stands in the GRH area: right-aligned.
const IPV4_OFFSET: usize = 20;

/// Kind of a packet's network header, as the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// An InfiniBand GRH: InfiniBand itself and RoCEv1.
    Grh,
    /// RoCEv2 over IPv4: 20 undefined bytes, then the IPv4 header.
    Ipv4,
    /// RoCEv2 over IPv6: the IPv6 header, laid out like a GRH.
    Ipv6,
    /// The device does not say which one it is; the bytes tell.
    Unknown,
}

/// Fields of the completion of a packet.
#[derive(Clone, Copy, Debug)]
pub struct RxMeta {
    /// The queue pair that sent the packet.
    pub src_qp: u32,
    /// The LID of the port that sent it, which names the sender if there is no network header.
    pub slid: u16,
    /// Contents of the GRH area; `None` if there are none.
    pub network: Option<Network>,
}

/// The sender of a packet, as its completion names it: in one number, which is compared at once.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sender(u64);

impl Sender {
    /// Of no packet.
    const NONE: Sender = Sender(u64::MAX);

    /// Of a packet without a network header.
    #[inline]
    const fn in_subnet(lid: u16, src_qp: u32) -> Sender {
        Sender(((lid as u64) << 32) | src_qp as u64)
    }

    /// Of a packet whose network header is of a kind.
    #[inline]
    const fn behind(network: Network, src_qp: u32) -> Sender {
        Sender(((network as u64).wrapping_add(1) << 48) | src_qp as u64)
    }
}

/// Addresses of the receiver.
#[derive(Clone, Copy, Debug)]
pub struct Local {
    /// The GID that our packets carry as their source.
    pub gid: Gid,
    /// Our UD queue pair.
    pub qpn: Qpn,
    /// The link's broadcast group.
    pub broadcast: Mgid,
}

/// To whom a packet was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// To us alone, or the packet had no GRH: a multicast packet always has one.
    Unicast,
    /// To a group other than the broadcast group.
    Multicast,
    /// To the link's broadcast group.
    Broadcast,
}

/// The GRH area in native words.
type Words = [u64; GRH_LEN / 8];

/// Source of packets within an InfiniBand subnet, which have no GRH: the LID stands for the GID that is not there.
pub const fn source_in_subnet(lid: u16, qpn: Qpn) -> HwAddr {
    HwAddr::new(Flags::NONE, qpn, Gid::from_lid(lid))
}

/// Route of the last unicast packet whose addresses passed the checks.
///
/// Most packets have the addresses of the one before, which need no second check. They are compared without a
/// branch for each word.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The sender of that packet.
    sender: Sender,
    /// The GRH area of that packet.
    words: Words,
    /// Mask of the bits in it that were checked, which all packets of the route have in common.
    fixed: Words,
    /// The source, without flags.
    source: HwAddr,
}

impl Route {
    /// No packet yet.
    pub const NONE: Route = Route {
        sender: Sender::NONE,
        words: [0; GRH_LEN / 8],
        fixed: [0; GRH_LEN / 8],
        source: HwAddr([0; HwAddr::LEN]),
    };

    /// Returns true if a packet went between the same two; if so, its GRH area is what it should be.
    #[inline]
    fn is_of(&self, grh: &[u8; GRH_LEN], meta: RxMeta) -> bool {
        let Some(network) = meta.network else {
            // There is nothing in that area.
            return self.sender == Sender::in_subnet(meta.slid, meta.src_qp);
        };
        if self.sender != Sender::behind(network, meta.src_qp) {
            return false;
        }
        let [a, b, c, d, e] = words(grh);
        let [was_a, was_b, was_c, was_d, was_e] = self.words;
        let [fixed_a, fixed_b, fixed_c, fixed_d, fixed_e] = self.fixed;
        let differ = ((a ^ was_a) & fixed_a)
            | ((b ^ was_b) & fixed_b)
            | ((c ^ was_c) & fixed_c)
            | ((d ^ was_d) & fixed_d)
            | ((e ^ was_e) & fixed_e);
        differ == 0
    }

    /// Finds out between whom a packet went.
    #[inline(never)]
    fn find(
        &mut self,
        grh: &[u8; GRH_LEN],
        meta: RxMeta,
        local: &Local,
    ) -> Result<(Destination, Option<&HwAddr>), DropReason> {
        let qpn = Qpn::unicast(meta.src_qp).ok_or(DropReason::BadSource)?;
        let Some(network) = meta.network else {
            if meta.slid == 0 {
                return Ok((Destination::Unicast, None));
            }
            *self = Route {
                sender: Sender::in_subnet(meta.slid, meta.src_qp),
                words: [0; GRH_LEN / 8],
                fixed: [0; GRH_LEN / 8],
                source: source_in_subnet(meta.slid, qpn),
            };
            return Ok((Destination::Unicast, Some(&self.source)));
        };
        let [.., s0, s1, s2, s3, d0, d1, d2, d3] = *grh;
        let ipv4 = is_ipv4(grh, network)?;
        let (source, destination) = if ipv4 {
            (
                Gid::from_ipv4_mapped([s0, s1, s2, s3]),
                Gid::from_ipv4_mapped([d0, d1, d2, d3]),
            )
        } else {
            let gids = grh.split_first_chunk::<8>().map(|(_, gids)| gids);
            let (source, rest) = gids
                .and_then(|gids| gids.split_first_chunk())
                .ok_or(DropReason::TruncatedGrh)?;
            let destination = rest.first_chunk().ok_or(DropReason::TruncatedGrh)?;
            (Gid(*source), Gid(*destination))
        };
        let dest = destined(&source, qpn, &destination, local)?;
        if dest != Destination::Unicast {
            return Ok((dest, None));
        }
        *self = Route {
            sender: Sender::behind(network, meta.src_qp),
            words: words(grh),
            fixed: match (ipv4, network) {
                (false, _) => FIXED_IN_GRH,
                (true, Network::Ipv4) => FIXED_IN_IPV4,
                // All of it tells that it is none of a GRH.
                (true, _) => [u64::MAX; GRH_LEN / 8],
            },
            source: HwAddr::new(Flags::NONE, qpn, source),
        };
        Ok((dest, Some(&self.source)))
    }
}

/// Bits of a GRH that are checked: the version, and all that is behind the first eight bytes.
const FIXED_IN_GRH: Words = [
    u64::from_ne_bytes([0xf0, 0, 0, 0, 0, 0, 0, 0]),
    u64::MAX,
    u64::MAX,
    u64::MAX,
    u64::MAX,
];

/// Bits of an IPv4 header that are checked if it is known to be one: its first byte, which is at
/// [`IPV4_OFFSET`], and its addresses.
const FIXED_IN_IPV4: Words = [
    0,
    0,
    u64::from_ne_bytes([0, 0, 0, 0, 0xff, 0, 0, 0]),
    0,
    u64::MAX,
];

/// The GRH area as native words.
#[inline]
fn words(grh: &[u8; GRH_LEN]) -> Words {
    let mut words = [0; GRH_LEN / 8];
    for (word, bytes) in words.iter_mut().zip(grh.chunks_exact(8)) {
        if let Some(bytes) = bytes.first_chunk() {
            *word = u64::from_ne_bytes(*bytes);
        }
    }
    words
}

/// A frame that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The type of the payload, one that the link carries.
    pub ether_type: EtherType,
    /// The reserved field of the encapsulation header, in host byte order.
    pub reserved: u16,
    /// How long the payload is, from [`PAYLOAD_OFFSET`] on, in bytes; at least 1.
    pub payload_len: usize,
    /// The sender, without flags, if the packet was unicast and says who that is. Without a GRH its GID is
    /// [`Gid::from_lid`].
    pub source: Option<&'a HwAddr>,
    /// To whom the packet was sent.
    pub dest: Destination,
}

/// Checks a received packet as [`classify`] does, if it has the addresses of the one before. `None` if it has others,
/// or if something is wrong with it.
// `meta` is called where its fields are compared: that makes one comparison of a packet without a network header.
#[inline(always)]
pub fn classify_known<'a>(
    packet: &[u8],
    meta: impl FnOnce() -> RxMeta,
    route: &'a Route,
) -> Option<Frame<'a>> {
    if packet.len() <= PAYLOAD_OFFSET {
        return None;
    }
    let (grh, rest) = packet.split_first_chunk::<GRH_LEN>()?;
    let header = Header::parse(rest).ok()?;
    let known = route.is_of(grh, meta()) && header.ether_type.is_supported();
    known.then(|| Frame {
        ether_type: header.ether_type,
        reserved: header.reserved,
        payload_len: packet.len().wrapping_sub(PAYLOAD_OFFSET),
        source: Some(&route.source),
        dest: Destination::Unicast,
    })
}

/// Checks a received packet.
///
/// `packet` is all that the device wrote, the GRH area first. Nothing of it is trusted, nor is the
/// completion. `route` becomes that of the packet, if it is a unicast one.
///
/// # Errors
///
/// The reason to drop the packet, to be counted under its name.
pub fn classify<'a>(
    packet: &[u8],
    meta: RxMeta,
    local: &Local,
    route: &'a mut Route,
) -> Result<Frame<'a>, DropReason> {
    // A frame without any payload is as short as one without a header.
    if packet.len() <= PAYLOAD_OFFSET {
        return Err(cut_off(packet));
    }
    let (grh, rest) = packet
        .split_first_chunk::<GRH_LEN>()
        .ok_or(DropReason::TruncatedGrh)?;
    let header = Header::parse(rest)?;
    let (dest, source) = route.find(grh, meta, local)?;
    if !header.ether_type.is_supported() {
        return Err(DropReason::EtherType);
    }
    Ok(Frame {
        ether_type: header.ether_type,
        reserved: header.reserved,
        payload_len: packet.len().wrapping_sub(PAYLOAD_OFFSET),
        source,
        dest,
    })
}

/// Reason to drop a packet that is too short.
#[cold]
fn cut_off(packet: &[u8]) -> DropReason {
    if packet.len() < GRH_LEN {
        DropReason::TruncatedGrh
    } else {
        DropReason::Short
    }
}

/// Returns true if a GID names a group: an MGID, or RoCEv2's form of an IPv4 multicast address.
#[inline]
fn is_group(gid: &Gid) -> bool {
    gid.is_multicast() || matches!(gid.to_ipv4(), Some([224..=239, ..]))
}

/// To whom a packet was sent, if its addresses are such as a peer's can be.
#[inline]
fn destined(
    source: &Gid,
    source_qpn: Qpn,
    destination: &Gid,
    local: &Local,
) -> Result<Destination, DropReason> {
    if is_group(source) {
        return Err(DropReason::BadSource);
    }
    if !is_group(destination) {
        return Ok(Destination::Unicast);
    }
    // Neither is enough alone: a host has several queue pairs, and the first queue pair of
    // every soft-RoCE host has the same number.
    if source_qpn == local.qpn && *source == local.gid {
        return Err(DropReason::OwnMulticast);
    }
    if *destination == local.broadcast.gid() {
        Ok(Destination::Broadcast)
    } else {
        Ok(Destination::Multicast)
    }
}

/// Returns true if the GRH area holds an IPv4 header or a GRH, of such a kind as packets have.
#[inline]
fn is_ipv4(grh: &[u8; GRH_LEN], network: Network) -> Result<bool, DropReason> {
    let ipv4 = match network {
        Network::Grh | Network::Ipv6 => false,
        Network::Ipv4 => true,
        Network::Unknown => looks_like_ipv4(grh).ok_or(DropReason::BadGrh)?,
    };
    if is_well_formed(grh, ipv4) {
        Ok(ipv4)
    } else {
        Err(DropReason::BadGrh)
    }
}

/// Returns true if the first byte of an IPv4 header, or of a GRH, is as it has to be.
#[inline]
const fn is_well_formed(grh: &[u8; GRH_LEN], ipv4: bool) -> bool {
    if ipv4 {
        // RoCEv2 has no IPv4 options.
        grh[IPV4_OFFSET] == 0x45
    } else {
        grh[0] >> 4 == 6
    }
}

/// Tells an IPv4 header from a GRH where the device does not: `None` if it is neither.
///
/// In front of an IPv4 header stand 20 undefined bytes that may look like a GRH. A valid
/// header checksum settles it, since a GRH has one by accident only once in 65536 times.
fn looks_like_ipv4(grh: &[u8; GRH_LEN]) -> Option<bool> {
    let ipv4 = grh[IPV4_OFFSET];
    if grh[0] >> 4 != 6 {
        return if ipv4 >> 4 == 4 { Some(true) } else { None };
    }
    Some(ipv4 == 0x45 && ipv4_checksum_ok(grh))
}

/// Returns true if the ones' complement sum of the IPv4 header is what it must be (RFC 791).
fn ipv4_checksum_ok(grh: &[u8; GRH_LEN]) -> bool {
    let Some(header) = grh.get(IPV4_OFFSET..) else {
        return false;
    };
    let mut sum: u32 = 0;
    for pair in header.chunks_exact(2) {
        if let [high, low] = *pair {
            sum = sum.wrapping_add(u32::from(u16::from_be_bytes([high, low])));
        }
    }
    // Ten words carry less than ten. If adding that carries again, next to nothing is left.
    (sum & 0xffff).wrapping_add(sum >> 16) == 0xffff
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_rx))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::wire::mgid::{self, Scope};
    use crate::wire::pkey::PKey;

    /// [`super::classify`] of a packet that nothing went before; the source as it is.
    fn classify(
        head: &[u8],
        meta: RxMeta,
        local: &Local,
    ) -> Result<(Frame<'static>, Option<HwAddr>), DropReason> {
        let mut route = Route::NONE;
        let frame = super::classify(head, meta, local, &mut route)?;
        let source = frame.source.copied();
        let frame = Frame {
            source: None,
            ..frame
        };
        Ok((frame, source))
    }

    /// The verdict on a packet behind those that went by `route`.
    fn next<'a>(bytes: &[u8], meta: RxMeta, route: &'a mut Route) -> Result<Frame<'a>, DropReason> {
        if classify_known(bytes, || meta, route).is_some() {
            return classify_known(bytes, || meta, route).ok_or(DropReason::BadGrh);
        }
        super::classify(bytes, meta, &local(), route)
    }

    fn dest(head: &[u8], meta: RxMeta, local: &Local) -> Result<Destination, DropReason> {
        classify(head, meta, local).map(|(frame, _)| frame.dest)
    }

    fn source_of(head: &[u8], meta: RxMeta) -> Result<Option<Gid>, DropReason> {
        classify(head, meta, &local()).map(|(_, source)| source.map(|source| source.gid()))
    }

    const OUR_GID: [u8; 16] = [
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x15, 0x5d, 0xff, 0xfe, 0, 0, 1,
    ];
    const PEER_GID: [u8; 16] = [
        0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0x02, 0x15, 0x5d, 0xff, 0xfe, 0, 0, 2,
    ];
    const OUR_QPN: u32 = 0x11;

    fn local() -> Local {
        Local {
            gid: Gid(OUR_GID),
            qpn: Qpn::unicast(OUR_QPN).unwrap_or(Qpn::MULTICAST),
            broadcast: mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL),
        }
    }

    const META: RxMeta = RxMeta {
        src_qp: OUR_QPN,
        slid: 0,
        network: Some(Network::Grh),
    };

    fn of_network(network: Network) -> RxMeta {
        RxMeta {
            network: Some(network),
            ..META
        }
    }

    /// A GRH or IPv6 header, an encapsulation header and 20 bytes of payload.
    fn packet(source: [u8; 16], destination: [u8; 16], header: [u8; 4]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[0] = 0x60;
        bytes[8..24].copy_from_slice(&source);
        bytes[24..40].copy_from_slice(&destination);
        bytes[40..44].copy_from_slice(&header);
        bytes[44] = 0x45;
        bytes
    }

    /// Such a packet with RoCEv2's IPv4 header, 10.0.0.2 to `destination`.
    fn packet_ipv4(destination: [u8; 4]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[20..40].copy_from_slice(&[
            0x45, 0, 0, 0x54, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 10, 0, 0, 2, 0, 0, 0, 0,
        ]);
        bytes[36..40].copy_from_slice(&destination);
        let mut sum: u32 = 0;
        for i in (20..40).step_by(2) {
            sum += u32::from(u16::from_be_bytes([bytes[i], bytes[i + 1]]));
        }
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        bytes[30..32].copy_from_slice(&checksum.to_be_bytes());
        bytes[40..44].copy_from_slice(&[0x08, 0x00, 0, 0]);
        bytes
    }

    const IPV4: [u8; 4] = [0x08, 0x00, 0, 0];

    /// A packet is of the route that was found if nothing that counts differs, wherever else something does,
    /// or in how many words.
    #[test]
    fn a_route_is_told_by_all_of_its_words() -> Result<(), DropReason> {
        let bytes = packet(PEER_GID, OUR_GID, IPV4);
        let grh = *bytes.first_chunk().ok_or(DropReason::TruncatedGrh)?;
        let mut route = Route::NONE;
        assert!(!route.is_of(&grh, META));
        route.find(&grh, META, &local())?;
        assert!(route.is_of(&grh, META));
        assert!(!route.is_of(&grh, of_network(Network::Ipv4)));
        let src_qp = META.src_qp + 1;
        assert!(!route.is_of(&grh, RxMeta { src_qp, ..META }));
        // The flow label does not count.
        let mut other = grh;
        other[3] ^= 1;
        assert!(route.is_of(&other, META));
        // One word differs, and another one in the same bits.
        for first in (0..GRH_LEN).step_by(8) {
            for second in (first..GRH_LEN).step_by(8) {
                let mut other = grh;
                other[first] ^= 0x10;
                if second != first {
                    other[second] ^= 0x10;
                }
                assert!(!route.is_of(&other, META));
            }
        }
        Ok(())
    }

    /// RFC 791: the checksum, with carries and without, and with each bit wrong.
    #[test]
    fn rfc791_checksum() {
        let mut all_ones = [0; GRH_LEN];
        all_ones[20..].fill(0xff);
        let mut one_word = [0; GRH_LEN];
        one_word[38..].fill(0xff);
        let bytes = packet_ipv4([10, 0, 0, 1]);
        let real = bytes.first_chunk().copied().unwrap_or([0; GRH_LEN]);
        for good in [all_ones, one_word, real] {
            assert!(ipv4_checksum_ok(&good));
            for bit in 20 * 8..GRH_LEN * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(!ipv4_checksum_ok(&bad));
            }
        }
        assert!(!ipv4_checksum_ok(&[0; GRH_LEN]));
    }

    /// RFC 4391, section 6: a unicast frame with a GRH.
    #[test]
    fn rfc4391_6_with_grh() {
        let bytes = packet(PEER_GID, OUR_GID, IPV4);
        let frame = Frame {
            ether_type: EtherType::IPV4,
            reserved: 0,
            payload_len: 20,
            source: None,
            dest: Destination::Unicast,
        };
        let source = HwAddr::new(Flags::NONE, local().qpn, Gid(PEER_GID));
        assert_eq!(classify(&bytes, META, &local()), Ok((frame, Some(source))));
    }

    /// RFC 4391, section 6: a frame without a GRH is accepted, whatever stands in its place.
    #[test]
    fn rfc4391_6_without_grh() {
        let mut bytes = packet([0xff; 16], [0xff; 16], IPV4);
        bytes[0] = 0xa5;
        let meta = RxMeta {
            network: None,
            ..META
        };
        let Ok((frame, source)) = classify(&bytes, meta, &local()) else {
            panic!("refused");
        };
        assert_eq!(source, None);
        assert_eq!(frame.dest, Destination::Unicast);
        assert_eq!(frame.payload_len, 20);
    }

    /// Within a subnet, the LID and the queue pair tell senders apart, of packets one after the other, too.
    #[test]
    fn senders_without_grh() {
        let bytes = packet([0xff; 16], [0xff; 16], IPV4);
        let mut route = Route::NONE;
        let mut source = |slid, src_qp, network| {
            let meta = RxMeta {
                src_qp,
                slid,
                network,
            };
            let frame = next(&bytes, meta, &mut route)?;
            assert_eq!(frame.dest, Destination::Unicast);
            Ok::<_, DropReason>(frame.source.copied())
        };
        for (slid, src_qp) in [(5, 0x11), (5, 0x11), (6, 0x11), (6, 0x12), (5, 0x11)] {
            let sender = source(slid, src_qp, None);
            let sender = sender.ok().flatten();
            let named = sender.map(|sender| (sender.gid(), sender.qpn().get()));
            assert_eq!(named, Some((Gid::from_lid(slid), src_qp)));
        }
        // Neither the one before nor the header that is not there.
        assert_eq!(source(0, 0x11, None), Ok(None));
        assert!(source(5, 0x11, Some(Network::Grh)).is_err());
        assert_eq!(
            source(5, Qpn::MULTICAST.get(), None),
            Err(DropReason::BadSource)
        );
        assert_eq!(Gid::from_lid(0x1234).as_bytes()[13..], [0, 0x12, 0x34]);
    }

    /// RFC 4391, section 6: the reserved field is handed on and not judged.
    #[test]
    fn rfc4391_6_reserved_is_ignored() {
        let bytes = packet(PEER_GID, OUR_GID, [0x86, 0xdd, 0xab, 0xcd]);
        let frame = classify(&bytes, META, &local());
        assert_eq!(
            frame.map(|(f, _)| (f.ether_type, f.reserved)),
            Ok((EtherType::IPV6, 0xabcd))
        );
    }

    /// RFC 4391, section 6: a type that is not in its list.
    #[test]
    fn rfc4391_6_unknown_type() {
        let bytes = packet(PEER_GID, OUR_GID, [0x81, 0x00, 0, 0]);
        assert_eq!(classify(&bytes, META, &local()), Err(DropReason::EtherType));
    }

    /// RFC 4391, section 4: broadcast is one group among the groups.
    #[test]
    fn rfc4391_4_destination() {
        let to = |mgid: Mgid| {
            let bytes = packet(PEER_GID, mgid.gid().0, IPV4);
            dest(&bytes, META, &local())
        };
        let mut group = local().broadcast.gid();
        group.0[12..].copy_from_slice(&[0, 0, 0, 1]);
        assert_eq!(to(local().broadcast), Ok(Destination::Broadcast));
        assert_eq!(
            to(Mgid::parse(group).unwrap_or(local().broadcast)),
            Ok(Destination::Multicast)
        );
    }

    #[test]
    fn own_multicast_needs_gid_and_queue_pair() {
        let broadcast = local().broadcast.gid().0;
        let own = packet(OUR_GID, broadcast, IPV4);
        assert_eq!(
            classify(&own, META, &local()),
            Err(DropReason::OwnMulticast)
        );
        // The same port, another queue pair: a sibling interface, whose frames are for us.
        let sibling = RxMeta {
            src_qp: OUR_QPN + 1,
            ..META
        };
        assert_eq!(dest(&own, sibling, &local()), Ok(Destination::Broadcast));
        // The same queue pair number on another host.
        let peer = packet(PEER_GID, broadcast, IPV4);
        assert_eq!(dest(&peer, META, &local()), Ok(Destination::Broadcast));
        // Unicast to ourselves is a legitimate path.
        let to_self = packet(OUR_GID, OUR_GID, IPV4);
        assert_eq!(dest(&to_self, META, &local()), Ok(Destination::Unicast));
    }

    #[test]
    fn short_packets_are_refused() {
        let bytes = packet(PEER_GID, OUR_GID, IPV4);
        let at = |len| classify(&bytes[..len], META, &local()).map(|(frame, _)| frame.payload_len);
        assert_eq!(at(0), Err(DropReason::TruncatedGrh));
        assert_eq!(at(39), Err(DropReason::TruncatedGrh));
        assert_eq!(at(40), Err(DropReason::Short));
        assert_eq!(at(43), Err(DropReason::Short));
        assert_eq!(at(44), Err(DropReason::Short));
        assert_eq!(at(45), Ok(1));
        assert_eq!(at(64), Ok(20));
    }

    #[test]
    fn sources_that_cannot_be_peers() {
        let from_group = packet([0xff; 16], OUR_GID, IPV4);
        assert_eq!(
            classify(&from_group, META, &local()),
            Err(DropReason::BadSource)
        );
        let bytes = packet(PEER_GID, OUR_GID, IPV4);
        for src_qp in [0, 1, 0xff_ffff, 0x100_0000, u32::MAX] {
            let meta = RxMeta { src_qp, ..META };
            assert_eq!(classify(&bytes, meta, &local()), Err(DropReason::BadSource));
        }
    }

    #[test]
    fn roce_v2_over_ipv4() {
        let bytes = packet_ipv4([10, 0, 0, 1]);
        for network in [Network::Ipv4, Network::Unknown] {
            let meta = of_network(network);
            assert_eq!(
                source_of(&bytes, meta),
                Ok(Some(Gid::from_ipv4_mapped([10, 0, 0, 2])))
            );
            assert_eq!(dest(&bytes, meta, &local()), Ok(Destination::Unicast));
        }
    }

    #[test]
    fn ipv4_multicast_is_multicast() {
        let bytes = packet_ipv4([239, 1, 2, 3]);
        let meta = of_network(Network::Ipv4);
        assert_eq!(dest(&bytes, meta, &local()), Ok(Destination::Multicast));
    }

    /// The 20 bytes in front of an IPv4 header are undefined and may look like a GRH.
    #[test]
    fn the_ipv4_checksum_decides() {
        let meta = of_network(Network::Unknown);
        let mut bytes = packet_ipv4([10, 0, 0, 1]);
        bytes[0] = 0x60;
        let mapped = Gid::from_ipv4_mapped([10, 0, 0, 2]);
        assert_eq!(source_of(&bytes, meta), Ok(Some(mapped)));
        bytes[30] ^= 0x01;
        assert_eq!(
            source_of(&bytes, meta).map(|gid| gid.and_then(Gid::to_ipv4)),
            Ok(None)
        );
    }

    #[test]
    fn a_grh_area_that_is_neither() {
        let mut bytes = packet(PEER_GID, OUR_GID, IPV4);
        bytes[0] = 0;
        for network in [Network::Grh, Network::Ipv4, Network::Ipv6, Network::Unknown] {
            let meta = of_network(network);
            assert_eq!(classify(&bytes, meta, &local()), Err(DropReason::BadGrh));
        }
        // IPv4 options do not occur in RoCEv2.
        let mut bytes = packet_ipv4([10, 0, 0, 1]);
        bytes[20] = 0x46;
        let meta = of_network(Network::Unknown);
        assert_eq!(classify(&bytes, meta, &local()), Err(DropReason::BadGrh));
    }

    /// A packet like the one before is judged without a second look at its addresses, and as the first one was.
    #[test]
    fn a_packet_like_the_one_before() -> Result<(), DropReason> {
        let bytes = packet(PEER_GID, OUR_GID, IPV4);
        let mut route = Route::NONE;
        assert_eq!(classify_known(&bytes, || META, &route), None);
        let mut before = Route::NONE;
        let first = super::classify(&bytes, META, &local(), &mut before)?;
        super::classify(&bytes, META, &local(), &mut route)?;
        assert_eq!(classify_known(&bytes, || META, &route), Some(first));
        let shortest = &bytes[..=PAYLOAD_OFFSET];
        assert!(
            classify_known(shortest, || META, &route).is_some_and(|frame| frame.payload_len == 1)
        );
        assert_eq!(
            classify_known(&bytes[..PAYLOAD_OFFSET], || META, &route),
            None
        );
        let foreign = packet(PEER_GID, OUR_GID, [0x81, 0, 0, 0]);
        assert_eq!(classify_known(&foreign, || META, &route), None);
        Ok(())
    }

    /// The route of one packet says nothing about another that differs.
    #[test]
    fn a_route_is_of_its_packets_only() {
        let mut route = Route::NONE;
        let mut source = |bytes: &[u8], meta: RxMeta| {
            next(bytes, meta, &mut route).map(|frame| frame.source.copied())
        };
        let peer = |qpn, gid| {
            let qpn = Qpn::unicast(qpn).unwrap_or(Qpn::MULTICAST);
            Ok(Some(HwAddr::new(Flags::NONE, qpn, Gid(gid))))
        };
        let bytes = packet(PEER_GID, OUR_GID, IPV4);
        for _ in 0..2 {
            assert_eq!(source(&bytes, META), peer(OUR_QPN, PEER_GID));
        }
        let src_qp = OUR_QPN + 1;
        let sibling = RxMeta { src_qp, ..META };
        assert_eq!(source(&bytes, sibling), peer(src_qp, PEER_GID));
        let network = None;
        let without = RxMeta { network, ..META };
        assert_eq!(source(&bytes, without), Ok(None));
        let over_ipv4 = packet_ipv4([10, 0, 0, 1]);
        let mut ambiguous = over_ipv4;
        ambiguous[0] = 0x60;
        for (bytes, network) in [
            (bytes, Network::Grh),
            (bytes, Network::Unknown),
            (over_ipv4, Network::Ipv4),
            (over_ipv4, Network::Unknown),
            (ambiguous, Network::Unknown),
        ] {
            let meta = of_network(network);
            let alone = |bytes: &[u8]| classify(bytes, meta, &local()).map(|(_, source)| source);
            assert!(matches!(alone(&bytes), Ok(Some(_))));
            for at in 0..GRH_LEN {
                for bit in [0x01, 0x10, 0x80] {
                    let mut other = bytes;
                    other[at] ^= bit;
                    assert_eq!(source(&bytes, meta), alone(&bytes));
                    assert_eq!(source(&other, meta), alone(&other));
                }
            }
        }
        let to_group = packet(PEER_GID, local().broadcast.gid().0, IPV4);
        assert_eq!(source(&to_group, META), Ok(None));
    }
}
