// SPDX-License-Identifier: GPL-2.0

//! The command line, on whatever host this is.

use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ipoibctl"))
        .args(arguments)
        .output()
        .expect("it runs")
}

#[test]
fn wrong_usage_has_a_status_of_its_own() {
    for arguments in [
        &[][..],
        &["cure"],
        &["doctor", "--yes"],
        &["peers", "--why", "x"],
        &["top", "-d", "0"],
        &["top", "-d", "nan"],
        &["top", "--sort", "colour"],
        &["tune"],
        &["tune", "--apply"],
        &["tune", "--undo", "--apply"],
        &["tune", "--preset", "comfort"],
        &["tune", "--preset", "latency", "--undo"],
        &["capture"],
        &["capture", "--packets", "0", "x"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(output.stdout.is_empty() && !output.stderr.is_empty());
    }
    assert_eq!(run(&["doctor", "--fix", "--json"]).status.code(), Some(70));
    let help = run(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("doctor"));
}

#[test]
fn json_has_a_version_and_the_exit_status() {
    for arguments in [
        &["status", "--json"][..],
        &["doctor", "--json"],
        &["peers", "--json"],
        &["peers", "--why", "10.255.255.254", "--json"],
        &["top", "--json", "--delay", "0.1"],
        &["tune", "--preset", "latency", "--json"],
        &["tune", "--undo", "--json"],
    ] {
        let output = run(arguments);
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(value["version"], 1);
        assert_eq!(
            value["status"].as_i64(),
            output.status.code().map(i64::from)
        );
    }
}

/// A pipe gets neither colours nor folded lines.
#[test]
fn a_pipe_gets_plain_text() {
    let output = run(&["doctor"]);
    assert!(output.status.code().is_some_and(|code| code <= 2));
    assert!(!output.stdout.contains(&0x1b));
}

#[test]
fn top_without_a_terminal_is_refused_in_a_sentence() {
    let output = run(&["top"]);
    assert_eq!(output.status.code(), Some(70));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("--json"), "{said}");
}

#[test]
fn completions_have_the_commands() {
    for shell in ["bash", "fish", "zsh"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{shell}");
        let text = String::from_utf8_lossy(&output.stdout);
        for word in ["doctor", "why", "rx-bits"] {
            assert!(text.contains(word), "{shell}: {word}");
        }
    }
    assert_eq!(run(&["completions", "cmd"]).status.code(), Some(64));
}
