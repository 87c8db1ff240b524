// SPDX-License-Identifier: GPL-2.0

//! Rules for faults: what their texts say is what happens, and no text does harm.

mod plans;
#[path = "checks/texts.rs"]
#[allow(dead_code, reason = "each test program uses its own part")]
mod texts;

use ib_fabric::completion::Status;
use ib_fabric::fault::*;
use proptest::prelude::*;

fn printed(table: &Table) -> String {
    let mut text = String::new();
    table.print(&mut text).unwrap();
    text
}

fn table(text: &str) -> Table {
    let mut table = Table::new();
    table.change(text).expect(text);
    table
}

#[test]
fn a_verb_fails_at_its_call() {
    let mut table = table("create_ah ENOMEM at 3\nmodify_qp:reset EIO from 2");
    let calls: Vec<_> = (0..5).map(|_| table.call(Verb::CreateAh)).collect();
    let none = None;
    assert_eq!(calls, [none, none, Some(Errno::NoMemory), none, none]);
    let calls: Vec<_> = (0..3).map(|_| table.call(Verb::ModifyQpReset)).collect();
    assert_eq!(calls, [none, Some(Errno::Io), Some(Errno::Io)]);
    assert_eq!(table.call(Verb::ModifyQp), None);
    assert_eq!(
        printed(&table),
        "create_ah ENOMEM at 3 # calls 5 struck 1\n\
         modify_qp:reset EIO from 2 # calls 3 struck 2"
    );
}

#[test]
fn a_new_rule_begins_to_count() {
    let mut table = table("post_send EIO at 2");
    assert_eq!(table.call(Verb::PostSend), None);
    table.change("post_send EAGAIN at 2").unwrap();
    assert_eq!(table.call(Verb::PostSend), None);
    assert_eq!(table.call(Verb::PostSend), Some(Errno::Again));
}

#[test]
fn requests_complete_in_error() {
    let mut table = table("send RETRY_EXC_ERR at 2\nreceive LOC_PROT_ERR from 1");
    assert_eq!(table.complete(Direction::Send), None);
    assert_eq!(
        table.complete(Direction::Receive),
        Some(Status::LocalProtection)
    );
    assert_eq!(table.complete(Direction::Send), Some(Status::RetryExceeded));
    assert_eq!(table.complete(Direction::Send), None);
}

#[test]
fn quirks_come_and_go() {
    let mut table = table("hold\nreset_once\ndelay 20\nsend_elements 64\n");
    assert!(table.has(Quirk::Hold) && table.has(Quirk::ResetOnce));
    assert_eq!(table.number(Setting::Delay), Some(20));
    assert_eq!(table.number(Setting::SendElements), Some(64));
    assert_eq!(table.number(Setting::LastWqeDelay), None);
    table.change("clear hold\nclear send_elements").unwrap();
    assert_eq!(printed(&table), "reset_once\ndelay 20");
    table.change("clear").unwrap();
    assert_eq!(table, Table::new());
    assert_eq!(printed(&table), "");
}

#[test]
fn what_is_active() {
    let cases = [
        ("clear", [false; 4]),
        ("query_gid EIO at 1", [true, false, false, false]),
        ("send FATAL_ERR at 1", [false, true, false, false]),
        ("csum_flag", [false, false, true, false]),
        ("last_wqe_delay 1", [false, false, true, false]),
        ("hold", [false, false, true, true]),
        ("delay 1", [false, false, true, true]),
    ];
    for (text, expected) in cases {
        let active = table(text).active();
        let seen = [active.verbs, active.completions, active.quirks, active.gate];
        assert_eq!(seen, expected, "{text}");
    }
}

#[test]
fn what_is_no_rule() {
    let texts = "\n \n#\ncreate_ah\ncreate_ah EIO\ncreate_ah EIO at\ncreate_ah EIO at 0\n\
         create_ah EIO at -1\ncreate_ah EIO at +1\ncreate_ah EIO at 1 2\ncreate_ah EIO at 1000000001\n\
         create_ah EIO at 99999999999999999999\ncreate_ah EWRONG at 1\ncreate_ah eio at 1\n\
         create_ah 5 at 1\ncreate_ah EIO until 1\ncreate EIO at 1\nmodify_qp: EIO at 1\n\
         modify_qp:sqe EIO at 1\nsend EIO at 1\nsend SUCCESS at 1\nrecv FATAL_ERR at 1\nhold 1\n\
         delay\ndelay 0\ndelay 60001\ndelay 1 1\nmodify_time 0\nsend_elements 1048577\nclear nothing\n\
         clear hold delay\nclear create_ah EIO\nhold;clear\nhold, delay 1\nhöld";
    let mut before = table("hold\npost_send EIO at 1");
    let _ = before.call(Verb::PostSend);
    for text in texts.split('\n').chain(["hold\u{a0}", "clear\0"]) {
        let mut after = before.clone();
        assert_eq!(after.change(text), None, "{text:?}");
        if !["", "#"].contains(&text.trim()) {
            // Not even the lines in front of it count.
            assert_eq!(after.change(&format!("clear\n{text}")), None, "{text:?}");
        }
        assert_eq!(after, before);
    }
}

#[test]
fn all_words_are_different() {
    let mut words: Vec<&str> = Verb::ALL.iter().map(|word| word.as_str()).collect();
    words.extend(Direction::ALL.iter().map(|word| word.as_str()));
    words.extend(Quirk::ALL.iter().map(|word| word.as_str()));
    words.extend(Setting::ALL.iter().map(|word| word.as_str()));
    words.push("clear");
    let all = words.len();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), all);
}

#[test]
fn all_rules_at_once_fit_into_a_file() {
    let mut text = String::new();
    for verb in Verb::ALL {
        text += &format!("{verb} EOPNOTSUPP from {MAX_CALL}\n");
    }
    for direction in Direction::ALL {
        text += &format!("{direction} RNR_RETRY_EXC_ERR from {MAX_CALL}\n");
    }
    for quirk in Quirk::ALL {
        text += &format!("{quirk}\n");
    }
    text += "delay 60000\nlast_wqe_delay 60000\nmodify_time 60000\nsend_elements 1048576\n";
    let all = table(&text);
    assert_eq!(printed(&all).lines().count(), text.lines().count());
    // Counters have up to ten digits.
    let longest = printed(&all).replace("calls 0 struck 0", "calls 4294967295 struck 4294967295");
    assert!(longest.len() < 4094, "{}", longest.len());
}

#[test]
fn after_a_fatal_error_objects_can_be_ended() {
    for verb in Verb::ALL {
        let word = verb.as_str();
        let ends = ["destroy_", "dealloc_", "dereg_", "detach_", "post_"];
        let expected = ends.iter().any(|end| word.starts_with(end))
            || word.ends_with("_cq") && !word.contains("create")
            || ["modify_qp:reset", "modify_qp:error"].contains(&word);
        assert_eq!(verb.outlives_fatal(), expected, "{verb}");
    }
}

#[test]
fn orders() {
    let cases = [
        ("device_fatal", EventName::DeviceFatal, Target::Device),
        ("port_error", EventName::PortError, Target::Port(1)),
        (" gid_change 2\n", EventName::GidChange, Target::Port(2)),
        ("speed_change", EventName::SpeedChange, Target::Port(1)),
        (
            "link_integrity 2",
            EventName::LinkIntegrity,
            Target::Port(2),
        ),
        ("buffer_overrun", EventName::BufferOverrun, Target::Port(1)),
        ("flow_control", EventName::FlowControl, Target::Port(1)),
        ("qp_fatal all", EventName::QpFatal, Target::AllQps),
        ("cq_error 0x48", EventName::CqError, Target::Qp(0x48)),
        ("srq_error 72", EventName::SrqError, Target::Qp(72)),
        (
            "path_migrated 0xffffff",
            EventName::Migrated,
            Target::Qp(0xff_ffff),
        ),
    ];
    for (text, event, target) in cases {
        let order = Order::parse(text).expect(text);
        assert_eq!(order, Order { event, target });
        assert_eq!(Order::parse(&order.to_string()), Some(order));
    }
    for text in [
        "",
        "fatal",
        "device_fatal 1",
        "device_fatal all",
        "port_error 0",
        "port_error 256",
        "port_error all",
        "port_error 1 1",
        "qp_fatal",
        "qp_fatal 0x1000000",
        "qp_fatal -1",
        "qp_fatal +1",
        "qp_fatal 0x",
        "qp_fatal 0x+1",
        "qp_fatal ALL",
        "qp_fatal 1 2",
        "cq_error one",
    ] {
        assert_eq!(Order::parse(text), None, "{text:?}");
    }
    let order = Order::parse("qp_fatal 0x48").unwrap();
    assert!(order.is_for(0x48) && !order.is_for(0x49));
    assert!(Order::parse("qp_fatal all").unwrap().is_for(1));
    assert!(!Order::parse("port_error 1").unwrap().is_for(1));
}

/// A word of the rules, or near to one.
fn word() -> impl Strategy<Value = String> {
    let mut words: Vec<&str> = Verb::ALL.iter().map(|word| word.as_str()).collect();
    words.extend(Errno::ALL.iter().map(|word| word.as_str()));
    words.extend(Status::ALL.iter().map(|word| word.as_str()));
    words.extend(Direction::ALL.iter().map(|word| word.as_str()));
    words.extend(Quirk::ALL.iter().map(|word| word.as_str()));
    words.extend(Setting::ALL.iter().map(|word| word.as_str()));
    words.extend(EventName::ALL.iter().map(|word| word.as_str()));
    words.extend([
        "at", "from", "clear", "all", "#", "1", "2", "3", "0x1", "\n", "\n",
    ]);
    prop_oneof![
        9 => prop::sample::select(words).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[0-9]{1,11}",
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        prop::collection::vec(word(), 0..12).prop_map(|words| words.join(" ")),
        rule().prop_map(|rule| rule + "\n"),
    ]
}

/// A rule.
fn rule() -> impl Strategy<Value = String> {
    let verb = (
        prop::sample::select(Verb::ALL),
        prop::sample::select(Errno::ALL),
        any::<bool>(),
        1u32..5,
    );
    let direction = (
        prop::sample::select(Direction::ALL),
        prop::sample::select(&Status::ALL[1..]),
        any::<bool>(),
        1u32..5,
    );
    let when = |from| if from { "from" } else { "at" };
    prop_oneof![
        verb.prop_map(move |(verb, errno, from, n)| format!("{verb} {errno} {} {n}", when(from))),
        direction.prop_map(move |(direction, failure, from, n)| format!(
            "{direction} {failure} {} {n}",
            when(from)
        )),
        prop::sample::select(Quirk::ALL).prop_map(|quirk| quirk.to_string()),
        (prop::sample::select(Setting::ALL), 1u32..100).prop_map(|(s, n)| format!("{s} {n}")),
    ]
}

proptest! {
    /// Whatever is written, all or nothing of it counts, and what is printed can be given again.
    #[test]
    fn any_text_for_rules(
        texts in prop::collection::vec(text(), 0..20),
        calls in prop::collection::vec(prop::sample::select(Verb::ALL), 0..40),
    ) {
        let mut table = Table::new();
        for text in &texts {
            texts::for_faults(&mut table, text);
        }
        texts::are_given_again(table, &calls);
    }

    #[test]
    fn any_rule_is_one(rules in prop::collection::vec(rule(), 1..9)) {
        prop_assert_eq!(Table::new().change(&rules.join("\n")), Some(()));
    }

    #[test]
    fn any_text_for_an_order(text in text()) {
        texts::for_an_event(&text);
    }
}
