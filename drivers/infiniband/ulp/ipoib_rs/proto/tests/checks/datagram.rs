// SPDX-License-Identifier: GPL-2.0

//! Checks of datagrams that anybody may have sent. The fuzz targets in `tests/fuzz` use them as well.

use ipoib_proto::rx::{
    classify, classify_known, Destination, Frame, Local, Route, RxMeta, PAYLOAD_OFFSET,
};

/// Checks that what passes lies within the buffer, and that its sender is one that can be answered.
pub(crate) fn stays_within_the_buffer(bytes: &[u8], meta: RxMeta, local: &Local) {
    let mut route = Route::NONE;
    let frame = match classify(bytes, meta, local, &mut route) {
        Ok(frame) => frame,
        Err(reason) => {
            assert!(reason.name().starts_with("rx_drop_"));
            return;
        }
    };
    assert!(frame.payload_len > 0);
    assert_eq!(PAYLOAD_OFFSET + frame.payload_len, bytes.len());
    assert!(frame.ether_type.is_supported());
    let has_grh = meta.network.is_some();
    let unicast = frame.dest == Destination::Unicast;
    // In a subnet, a LID tells as well.
    let is_known = has_grh || meta.slid != 0;
    assert_eq!(frame.source.is_some(), is_known && unicast);
    assert!(has_grh || unicast);
    assert!(frame.source.is_none_or(|source| source.qpn().is_unicast()));
    assert!(frame.source.is_none_or(|source| !source.is_multicast()));
}

/// Checks that a packet is judged as if nothing had gone before it.
pub(crate) fn as_if_alone(bytes: &[u8], meta: RxMeta, local: &Local, route: &mut Route) {
    let mut fresh = Route::NONE;
    let expected = classify(bytes, meta, local, &mut fresh);
    let known = classify_known(bytes, || meta, route).map(Ok);
    assert!(known.is_none_or(|known| known == expected));
    assert_eq!(classify(bytes, meta, local, route), expected);
    if let Ok(Frame {
        source: Some(_), ..
    }) = expected
    {
        assert_eq!(
            classify_known(bytes, || meta, route).map(Ok),
            Some(expected)
        );
    }
}
