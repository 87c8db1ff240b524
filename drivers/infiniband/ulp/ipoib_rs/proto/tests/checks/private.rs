// SPDX-License-Identifier: GPL-2.0

//! Checks of what the messages of a connection manager bring, which anybody may send. The fuzz targets in `tests/fuzz` use
//! them as well.

use ipoib_proto::cm::{self, connection_mtu, PrivateData, Refusal};
use ipoib_proto::hwaddr::Flags;

/// Checks the private data of a REQ or a REP: what is believed can be relied on, and is written as it was read.
pub(crate) fn of_a_request(bytes: &[u8]) {
    let data = match PrivateData::parse(bytes) {
        Ok(data) => data,
        Err(refusal) => {
            assert_eq!(refusal, Refusal::Data);
            return;
        }
    };
    assert!(data.qpn.is_unicast());
    // A packet that each link for IPv4 must carry, and its header.
    assert!(data.receive_mtu >= 72);
    assert!(connection_mtu(u32::MAX, data.receive_mtu) >= 68);
    if let Some(extension) = data.extension {
        assert!(extension.max_message >= data.receive_mtu);
        assert!(usize::from(extension.channel) < cm::MAX_CHANNELS);
        let known = Flags::SEQ.union(Flags::ICRC);
        assert!(known.contains(extension.flags));
    }
    let (written, len) = data.encode();
    assert_eq!(PrivateData::parse(&written[..len]), Ok(data));
    assert_eq!(written[1..cm::BASE_LEN], bytes[1..cm::BASE_LEN]);
    // Bytes behind the private data do not count.
    let short = &bytes[..bytes.len().min(cm::LEN)];
    assert_eq!(PrivateData::parse(short), Ok(data));
}

/// Checks the private data of a REJ.
pub(crate) fn of_a_rejection(bytes: &[u8]) {
    let Some(refusal) = Refusal::parse(bytes) else {
        return;
    };
    let written = refusal.encode(ipoib_proto::hwaddr::Qpn::MULTICAST);
    assert_eq!(Refusal::parse(&written), Some(refusal));
    assert_eq!(
        written[cm::BASE_LEN..],
        bytes[cm::BASE_LEN..cm::REFUSAL_LEN]
    );
}
