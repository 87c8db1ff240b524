// SPDX-License-Identifier: GPL-2.0

//! Packets, and their bytes as the figures of the specification have them.

use ib_fabric::rc::{Aeth, AtomicOp, Bth, Nak, Op, Part, Psn, Reth, Syndrome, Tail};
use ib_fabric::{Gid, Grh, Guid, Lid, Packet, Transport};

/// A name, the headers of a run, a number in it, the payload of the run, and the bytes.
type Example = (&'static str, Packet, u32, Vec<u8>, Vec<u8>);

/// From LID 1 to LID 2, queue pair 0x000a48, SL 3.
const BASE: Packet = Packet {
    slid: Lid::new(1),
    dlid: Lid::new(2),
    sl: 3,
    pkey: 0x8123,
    dest_qp: 0x0a48,
    grh: None,
    len: 0,
    management: false,
    transport: Transport::datagram(0, 0),
};

const MTU: u32 = 256;

fn connected(op: Op, packets: u32, bytes: u32) -> Packet {
    Packet {
        len: bytes.min(MTU),
        transport: Transport::Rc(Bth {
            psn: Psn::new(0xff_fffe),
            packets,
            bytes,
            ack_request: true,
            solicited: true,
            op,
        }),
        ..BASE
    }
}

/// Joins pieces of a packet.
fn join(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}

/// ICRC and VCRC.
const CRCS: &[u8] = &[0; 6];

pub(crate) fn all() -> Vec<Example> {
    let mut all = datagrams();
    all.extend(messages());
    all.extend(reads());
    all.extend(answers());
    all
}

fn datagrams() -> Vec<Example> {
    let smp = Packet {
        slid: Lid::PERMISSIVE,
        dlid: Lid::PERMISSIVE,
        sl: 0,
        pkey: 0xffff,
        dest_qp: 0,
        len: 256,
        management: true,
        transport: Transport::datagram(0, 0),
        ..BASE
    };
    let mad = vec![0x5a; 256];
    let smp_bytes = join(&[
        // VL 15, LVer 0; SL 0, LNH 10; DLID; 288 bytes are 72 words; SLID
        &[0xf0, 0x02, 0xff, 0xff, 0x00, 0x48, 0xff, 0xff],
        // SEND only of UD; MigReq, no pad, TVer 0; P_Key; queue pair 0; PSN
        &[0x64, 0x40, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0],
        // Q_Key; queue pair 0
        &[0, 0, 0, 0, 0, 0, 0, 0],
        &mad,
        CRCS,
    ]);
    let grh = Grh {
        traffic_class: 0xab,
        flow_label: 0xc_1234,
        hop_limit: 0x40,
        sgid: Gid::from_parts(Gid::DEFAULT_PREFIX, Guid::new(0x0102_0304_0506_0708)),
        dgid: Gid::from_parts(0xff12_401b_ffff_0000, Guid::new(0xffff_ffff)),
    };
    let group = Packet {
        dlid: Lid::new(0xc000),
        dest_qp: 0xff_ffff,
        grh: Some(grh),
        len: 5,
        transport: Transport::Ud {
            qkey: 0x0b1b,
            src_qp: 0x12_3456,
            immediate: Some(0xdead_beef),
            solicited: true,
        },
        ..BASE
    };
    let group_bytes = join(&[
        // VL 0; SL 3, LNH 11; DLID; 8 + 40 + 12 + 8 + 4 + 8 + 4 = 84 bytes are 21 words; SLID
        &[0x00, 0x33, 0xc0, 0x00, 0x00, 0x15, 0x00, 0x01],
        // version 6, class, label; 84 - 48 = 36 bytes follow; next header, hop limit
        &[0x6a, 0xbc, 0x12, 0x34, 0x00, 0x24, 0x1b, 0x40],
        &[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        &[
            0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
        ],
        // SEND only with immediate; solicited, MigReq, 3 pad bytes
        &[0x65, 0xf0, 0x81, 0x23, 0, 0xff, 0xff, 0xff, 0, 0, 0, 0],
        &[0, 0, 0x0b, 0x1b, 0, 0x12, 0x34, 0x56],
        &[0xde, 0xad, 0xbe, 0xef],
        &[1, 2, 3, 4, 5, 0, 0, 0],
        CRCS,
    ]);
    vec![
        ("SMP", smp, 0, mad, smp_bytes),
        ("multicast", group, 0, vec![1, 2, 3, 4, 5], group_bytes),
    ]
}

fn messages() -> Vec<Example> {
    // Three packets: 256, 256 and 2 bytes.
    let data: Vec<u8> = (0..514u32).map(|i| (i / 5) as u8).collect();
    let tail = Tail::Immediate(0x0102_0304);
    let send = connected(
        Op::Send {
            part: Part::ONLY,
            tail,
        },
        3,
        514,
    );
    let to = Reth {
        address: 0x1122_3344_5566_7788,
        key: 0xaabb_ccdd,
        len: 514,
    };
    let write = connected(
        Op::Write {
            part: Part::ONLY,
            to: Some(to),
            tail: Tail::Plain,
        },
        3,
        514,
    );
    let invalidate = connected(
        Op::Send {
            part: Part::ONLY,
            tail: Tail::Invalidate(0x99),
        },
        1,
        0,
    );
    let first = join(&[
        // 8 + 12 + 256 + 4 = 280 bytes are 70 words
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x46, 0x00, 0x01],
        // SEND first; nothing but MigReq; PSN without AckReq
        &[
            0x00, 0x40, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x00, 0xff, 0xff, 0xfe,
        ],
        &data[..256],
        CRCS,
    ]);
    let middle = join(&[
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x46, 0x00, 0x01],
        &[
            0x01, 0x40, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x00, 0xff, 0xff, 0xff,
        ],
        &data[256..512],
        CRCS,
    ]);
    let last = join(&[
        // 8 + 12 + 4 + 4 + 4 = 32 bytes are 8 words
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x08, 0x00, 0x01],
        // SEND last with immediate; solicited, MigReq, 2 pad bytes; AckReq; the PSN has wrapped
        &[0x03, 0xe0, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x80, 0, 0, 0],
        &[1, 2, 3, 4],
        &data[512..],
        &[0, 0],
        CRCS,
    ]);
    let write_first = join(&[
        // 16 bytes more
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x4a, 0x00, 0x01],
        &[
            0x06, 0x40, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x00, 0xff, 0xff, 0xfe,
        ],
        &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],
        &[0xaa, 0xbb, 0xcc, 0xdd, 0, 0, 0x02, 0x02],
        &data[..256],
        CRCS,
    ]);
    let write_last = join(&[
        // 8 + 12 + 4 + 4 = 28 bytes are 7 words
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x07, 0x00, 0x01],
        &[0x08, 0xe0, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x80, 0, 0, 0],
        &data[512..],
        &[0, 0],
        CRCS,
    ]);
    let invalidate_bytes = join(&[
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x07, 0x00, 0x01],
        &[
            0x17, 0xc0, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x80, 0xff, 0xff, 0xfe,
        ],
        &[0, 0, 0, 0x99],
        CRCS,
    ]);
    vec![
        ("SEND first", send, 0, data.clone(), first),
        ("SEND middle", send, 1, data.clone(), middle),
        ("SEND last", send, 2, data.clone(), last),
        ("WRITE first", write, 0, data.clone(), write_first),
        ("WRITE last", write, 2, data, write_last),
        (
            "SEND only with invalidate",
            invalidate,
            0,
            vec![],
            invalidate_bytes,
        ),
    ]
}

fn reads() -> Vec<Example> {
    let from = Reth {
        address: 0x10,
        key: 7,
        len: 0x0100_0000,
    };
    let read = connected(Op::Read(from), 1, 0);
    let read_bytes = join(&[
        // 8 + 12 + 16 + 4 = 40 bytes are 10 words
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x0a, 0x00, 0x01],
        &[
            0x0c, 0xc0, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x80, 0xff, 0xff, 0xfe,
        ],
        &[0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 7, 1, 0, 0, 0],
        CRCS,
    ]);
    let swap = Op::Atomic {
        address: 0x18,
        key: 9,
        op: AtomicOp::CompareSwap {
            compare: 0x0a,
            swap: 0x0b,
        },
    };
    let swap_bytes = join(&[
        // 8 + 12 + 28 + 4 = 52 bytes are 13 words
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x0d, 0x00, 0x01],
        &[
            0x13, 0xc0, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x80, 0xff, 0xff, 0xfe,
        ],
        &[0, 0, 0, 0, 0, 0, 0, 0x18, 0, 0, 0, 9],
        &[0, 0, 0, 0, 0, 0, 0, 0x0b, 0, 0, 0, 0, 0, 0, 0, 0x0a],
        CRCS,
    ]);
    let add = Op::Atomic {
        address: 0x18,
        key: 9,
        op: AtomicOp::FetchAdd(0x0c),
    };
    let add_bytes = join(&[
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x0d, 0x00, 0x01],
        &[
            0x14, 0xc0, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x80, 0xff, 0xff, 0xfe,
        ],
        &[0, 0, 0, 0, 0, 0, 0, 0x18, 0, 0, 0, 9],
        &[0, 0, 0, 0, 0, 0, 0, 0x0c, 0, 0, 0, 0, 0, 0, 0, 0],
        CRCS,
    ]);
    vec![
        ("READ request", read, 0, vec![], read_bytes),
        (
            "compare and swap",
            connected(swap, 1, 0),
            0,
            vec![],
            swap_bytes,
        ),
        ("fetch and add", connected(add, 1, 0), 0, vec![], add_bytes),
    ]
}

fn answers() -> Vec<Example> {
    let answer = |op, packets, bytes| {
        let packet = connected(op, packets, bytes);
        let Transport::Rc(bth) = packet.transport else {
            return packet;
        };
        let bth = Bth {
            ack_request: false,
            solicited: false,
            ..bth
        };
        Packet {
            transport: Transport::Rc(bth),
            ..packet
        }
    };
    let acknowledge = |syndrome| {
        let msn = 0x05;
        answer(Op::Acknowledge(Aeth { syndrome, msn }), 1, 0)
    };
    let acknowledged = |syndrome: u8| {
        join(&[
            // 8 + 12 + 4 + 4 = 28 bytes are 7 words
            &[0x00, 0x32, 0x00, 0x02, 0x00, 0x07, 0x00, 0x01],
            &[
                0x11, 0x40, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x00, 0xff, 0xff, 0xfe,
            ],
            &[syndrome, 0, 0, 5],
            CRCS,
        ])
    };
    let data = vec![0x77; 600];
    let response = answer(Op::ReadResponse { part: Part::ONLY }, 3, 600);
    let first = join(&[
        // 8 + 12 + 4 + 256 + 4 = 284 bytes are 71 words
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x47, 0x00, 0x01],
        &[
            0x0d, 0x40, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x00, 0xff, 0xff, 0xfe,
        ],
        &[0x1f, 0, 0, 0],
        &data[..256],
        CRCS,
    ]);
    let middle = join(&[
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x46, 0x00, 0x01],
        &[
            0x0e, 0x40, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x00, 0xff, 0xff, 0xff,
        ],
        &data[..256],
        CRCS,
    ]);
    let atomic = answer(Op::AtomicResponse(0x0102_0304_0506_0708), 1, 0);
    let atomic_bytes = join(&[
        // 8 + 12 + 4 + 8 + 4 = 36 bytes are 9 words
        &[0x00, 0x32, 0x00, 0x02, 0x00, 0x09, 0x00, 0x01],
        &[
            0x12, 0x40, 0x81, 0x23, 0, 0, 0x0a, 0x48, 0x00, 0xff, 0xff, 0xfe,
        ],
        &[0x1f, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        CRCS,
    ]);
    let mut all = vec![
        ("READ response first", response, 0, data.clone(), first),
        ("READ response middle", response, 1, data, middle),
        ("ATOMIC acknowledge", atomic, 0, vec![], atomic_bytes),
    ];
    // Section 9.7.5.1.2, table 44: 000 ACK, 001 RNR NAK, 011 NAK
    for (name, syndrome, byte) in [
        ("ACK", Syndrome::Ack, 0x1f),
        ("RNR NAK", Syndrome::ReceiverNotReady(12), 0x2c),
        ("PSN sequence error", Syndrome::Nak(Nak::Sequence), 0x60),
        ("invalid request", Syndrome::Nak(Nak::InvalidRequest), 0x61),
        (
            "remote access error",
            Syndrome::Nak(Nak::RemoteAccess),
            0x62,
        ),
        (
            "remote operational error",
            Syndrome::Nak(Nak::RemoteOperation),
            0x63,
        ),
    ] {
        all.push((name, acknowledge(syndrome), 0, vec![], acknowledged(byte)));
    }
    all
}
