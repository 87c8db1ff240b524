// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl top` on a terminal, which `script` makes: it comes, obeys, and leaves the terminal as it was.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);
const TAKEN: &str = "\x1b[?1049h";
const LEFT: &str = "\x1b[?1049l";

/// A terminal of 80x24 with a shell script on it.
struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    output: Receiver<Vec<u8>>,
    text: String,
    /// End of the text that was already waited for.
    seen: usize,
}

impl Terminal {
    /// Runs `ipoibctl top` there. Its process ID and the terminal are in the first line; behind its end, the script says
    /// how it ended, and whether the terminal is as before.
    fn top(arguments: &str, variables: &[(&str, &str)]) -> Terminal {
        let tool = env!("CARGO_BIN_EXE_ipoibctl");
        let script = format!(
            "stty rows 24 cols 80; before=$(stty -g); echo tty $(tty); \
             sh -c 'echo pid $$; exec {tool} top {arguments}'; code=$?; \
             [ \"$before\" = \"$(stty -g)\" ] && echo same modes; echo code $code"
        );
        let mut command = Command::new("script");
        command
            .args(["-q", "-e", "-c", &script, "/dev/null"])
            .env_remove("NO_COLOR")
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8");
        for (name, value) in variables {
            command.env(name, value);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script, of util-linux");
        let mut from = child.stdout.take().expect("a pipe");
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut room = [0; 4096];
            while let Ok(length @ 1..) = from.read(&mut room) {
                if sender.send(room[..length].to_vec()).is_err() {
                    break;
                }
            }
        });
        Terminal {
            keys: child.stdin.take(),
            child,
            output,
            text: String::new(),
            seen: 0,
        }
    }

    /// Waits for text, which has no space: what is blank anyway is passed over with a movement of the cursor. Returns what came up to it since the last time.
    fn wait(&mut self, what: &str) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(at) = self.text[self.seen..].find(what) {
                let from = self.seen;
                self.seen += at + what.len();
                return self.text[from..self.seen].to_owned();
            }
            let left = end.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                // A character may be in two parts.
                Ok(bytes) => self.text += &String::from_utf8_lossy(&bytes),
                Err(_) => panic!("no {what:?} in {:?}", &self.text[self.seen..]),
            }
        }
    }

    fn word_after(&mut self, name: &str) -> String {
        self.wait(name);
        let line = self.wait("\r\n");
        line.trim().to_owned()
    }

    fn press(&mut self, keys: &str) {
        let to = self.keys.as_mut().expect("a pipe");
        to.write_all(keys.as_bytes()).expect("keys");
        to.flush().expect("keys");
    }

    /// Waits for the end; the exit status as the shell tells it.
    fn end(&mut self) -> i32 {
        self.wait(LEFT);
        self.wait("same modes");
        let code = self.word_after("code");
        self.child.wait().expect("it ended");
        code.parse().expect("a number")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shell(command: &str) {
    let status = Command::new("sh").args(["-c", command]).status();
    assert!(status.expect("a shell").success(), "{command}");
}

/// The letter of a process's state; none if it is gone.
fn state(pid: &str) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit(") ").next()?.chars().next()
}

fn until(what: &str, is_true: impl Fn() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_true() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn status() -> Option<i32> {
    let output = Command::new(env!("CARGO_BIN_EXE_ipoibctl"))
        .arg("status")
        .output();
    output.expect("it runs").status.code()
}

#[test]
fn keys_end_it_and_the_terminal_is_as_before() {
    for key in ["q", "\x1b[21~", "\x03"] {
        let mut terminal = Terminal::top("", &[]);
        terminal.wait(TAKEN);
        terminal.wait("F10");
        terminal.press(key);
        assert_eq!(Some(terminal.end()), status(), "{key:?}");
    }
}

#[test]
fn signals_end_it_and_the_terminal_is_as_before() {
    for (name, number) in [("TERM", 15), ("INT", 2), ("HUP", 1), ("QUIT", 3)] {
        let mut terminal = Terminal::top("-d 60", &[]);
        let pid = terminal.word_after("pid");
        terminal.wait("F10");
        let begin = Instant::now();
        shell(&format!("ulimit -c 0; kill -{name} {pid}"));
        assert_eq!(terminal.end(), 128 + number, "{name}");
        assert!(begin.elapsed() < Duration::from_secs(5), "{name}");
    }
}

#[test]
fn a_terminal_that_is_gone_ends_it() {
    let mut terminal = Terminal::top("-d 60", &[]);
    let pid = terminal.word_after("pid");
    terminal.wait("F10");
    terminal.child.kill().expect("script is killed");
    until("it goes on without a terminal", || {
        state(&pid).is_none_or(|state| state == 'Z')
    });
}

#[test]
fn it_stops_and_goes_on() {
    let mut terminal = Terminal::top("-d 60", &[]);
    let pid = terminal.word_after("pid");
    terminal.wait("F10");
    terminal.press("\x1a");
    terminal.wait(LEFT);
    until("it does not stop", || state(&pid) == Some('T'));
    shell(&format!("kill -CONT {pid}"));
    terminal.wait(TAKEN);
    terminal.wait("F10");
    terminal.press("q");
    terminal.end();
}

#[test]
fn another_size_is_another_screen() {
    let mut terminal = Terminal::top("-d 60", &[]);
    let tty = terminal.word_after("tty");
    terminal.wait("F10");
    shell(&format!("stty -F {tty} rows 41 cols 150"));
    // The line of keys is the last one.
    terminal.wait("\x1b[41;1H");
    terminal.wait("F10");
    shell(&format!("stty -F {tty} rows 5 cols 20"));
    terminal.wait("\x1b[5;1H");
    terminal.press("q");
    terminal.end();
}

#[test]
fn keys_are_obeyed() {
    let mut terminal = Terminal::top("-d 60", &[]);
    terminal.wait("F10");
    terminal.press("\x1b[17~");
    terminal.wait("delivered");
    // Sent apart, as a slow network may do.
    terminal.press("\x1b");
    terminal.press("\x1b[14~");
    terminal.wait("Filter:");
    terminal.press("q\r");
    terminal.wait("\"q\"");
    terminal.press("?");
    terminal.wait("PgUp");
    terminal.press(" q");
    terminal.end();
}

/// Numbers of colours: 30 to 47, 90 to 107, and those with 38 and 48 in front.
fn has_colours(text: &str) -> bool {
    text.split("\x1b[").skip(1).any(|sequence| {
        let end = sequence.find(|c: char| c.is_ascii_alphabetic());
        let (numbers, rest) = sequence.split_at(end.unwrap_or(0));
        let is_colour = |number: &str| {
            let number: u32 = number.parse().unwrap_or(0);
            (30..=48).contains(&number) && number != 39 || (90..=107).contains(&number)
        };
        rest.starts_with('m') && numbers.split(';').any(is_colour)
    })
}

#[test]
fn colours_can_be_switched_off() {
    for (variables, coloured) in [(&[][..], true), (&[("NO_COLOR", "1")], false)] {
        let mut terminal = Terminal::top("", variables);
        terminal.wait("F10");
        terminal.press("q");
        terminal.end();
        assert_eq!(has_colours(&terminal.text), coloured, "{:?}", terminal.text);
    }
}

#[test]
fn a_dumb_terminal_is_refused_in_a_sentence() {
    let mut terminal = Terminal::top("", &[("TERM", "dumb")]);
    terminal.wait("ipoibctl: top draws on a terminal");
    terminal.wait("same modes");
    assert_eq!(terminal.word_after("code"), "70");
    assert!(!terminal.text.contains(TAKEN));
}
