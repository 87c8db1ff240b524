// SPDX-License-Identifier: GPL-2.0

//! Keys and signals.
//!
//! A thread reads the terminal, and another waits for signals: whoever draws sleeps until one of them has something, and
//! nothing spins when the terminal is gone.

use anyhow::Result;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;
use std::io::{ErrorKind, Read};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

/// Time for a process that is told to end. A terminal that takes no more output may keep it from that.
const GRACE: Duration = Duration::from_secs(1);

/// Something that happened.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// The terminal has sent these.
    Bytes(Vec<u8>),
    /// It has another size.
    Resize,
    /// A signal that ends processes.
    Signal(i32),
    /// The terminal is gone.
    Gone,
    /// The time is over.
    Nothing,
}

/// Events, in the order that they happen.
pub(super) struct Events(Receiver<Event>);

impl Events {
    /// Waits for the next one, for so long.
    pub(super) fn wait(&self, time: Duration) -> Event {
        match self.0.recv_timeout(time) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::Nothing,
            Err(RecvTimeoutError::Disconnected) => Event::Gone,
        }
    }
}

/// Begins to listen.
///
/// # Errors
///
/// Signals cannot be caught.
pub(super) fn events() -> Result<Events> {
    let (sender, receiver) = mpsc::channel();
    let signals = Signals::new([SIGWINCH, SIGTERM, SIGINT, SIGQUIT, SIGHUP])?;
    let of_signals = sender.clone();
    thread::spawn(move || watch(signals, &of_signals));
    thread::spawn(move || read(std::io::stdin().lock(), &sender));
    Ok(Events(receiver))
}

fn watch(mut signals: Signals, sender: &Sender<Event>) {
    for signal in signals.forever() {
        if signal == SIGWINCH {
            let _ = sender.send(Event::Resize);
            continue;
        }
        let _ = sender.send(Event::Signal(signal));
        thread::sleep(GRACE);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}

fn read(mut terminal: impl Read, sender: &Sender<Event>) {
    let mut room = [0; 256];
    loop {
        let event = match terminal.read(&mut room) {
            Ok(0) => Event::Gone,
            Ok(length) => Event::Bytes(room[..length].to_vec()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => Event::Gone,
        };
        let is_over = event == Event::Gone;
        if sender.send(event).is_err() || is_over {
            return;
        }
    }
}

/// A key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    /// With the control key.
    Ctrl(char),
    Function(u8),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    Home,
    End,
    PageUp,
    PageDown,
}

/// Bytes of a terminal become keys. A key may be a sequence, which arrives in parts over a slow network.
#[derive(Debug, Default)]
pub(super) struct Parser {
    rest: Vec<u8>,
}

/// A sequence is no longer than this.
const LONGEST: usize = 16;

impl Parser {
    /// Returns true if bytes of a key have come, and more are awaited.
    pub(super) fn is_within(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Keys that are complete with these bytes.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.rest.extend(bytes);
        let mut keys = Vec::new();
        while !self.rest.is_empty() {
            match key(&self.rest) {
                Some((length, found)) => {
                    self.rest.drain(..length);
                    keys.extend(found);
                }
                None if self.rest.len() > LONGEST => self.rest.clear(),
                None => break,
            }
        }
        keys
    }

    /// Keys in bytes that nothing has come after: an escape is a key by itself then.
    pub(super) fn end(&mut self) -> Vec<Key> {
        let rest = std::mem::take(&mut self.rest);
        match rest.as_slice() {
            [0x1b] => vec![Key::Escape],
            _ => Vec::new(),
        }
    }
}

/// The first key of `bytes`, which are not empty, and the length of its sequence, unless it has not ended. A sequence of
/// another meaning is no key.
fn key(bytes: &[u8]) -> Option<(usize, Option<Key>)> {
    match *bytes.first()? {
        0x1b => sequence(bytes),
        b'\r' | b'\n' => Some((1, Some(Key::Enter))),
        0x7f | 0x08 => Some((1, Some(Key::Backspace))),
        control @ 1..=26 => Some((1, Some(Key::Ctrl(char::from(control - 1 + b'a'))))),
        first => {
            let length = match first {
                0xc2..=0xdf => 2,
                0xe0..=0xef => 3,
                0xf0..=0xf4 => 4,
                _ => 1,
            };
            let text = bytes.get(..length)?;
            let found = std::str::from_utf8(text).ok();
            let found = found.and_then(|text| text.chars().next());
            // What is no UTF-8 is skipped, byte by byte.
            let length = if found.is_some() { length } else { 1 };
            let found = found.filter(|c| !c.is_control());
            Some((length, found.map(Key::Char)))
        }
    }
}

/// A key whose first byte is an escape.
fn sequence(bytes: &[u8]) -> Option<(usize, Option<Key>)> {
    match bytes {
        [_] => None,
        // F1 to F5 of the Linux console.
        [_, b'[', b'[', rest @ ..] => {
            let last = *rest.first()?;
            let key = matches!(last, b'A'..=b'E').then(|| Key::Function(last - b'A' + 1));
            Some((4, key))
        }
        [_, b'[', rest @ ..] => {
            let end = rest.iter().position(|byte| (0x40..0x7f).contains(byte))?;
            let number = std::str::from_utf8(&rest[..end]).unwrap_or_default();
            // A modifier may stand behind the number.
            let number = number.split(';').next().unwrap_or_default();
            Some((end + 3, named(rest[end], number)))
        }
        [_, b'O', rest @ ..] => Some((3, named(*rest.first()?, ""))),
        [_, 0x1b, ..] => Some((1, Some(Key::Escape))),
        // With the Alt key.
        _ => Some((2, None)),
    }
}

/// A key by the last byte of its sequence, and the number in it.
fn named(last: u8, number: &str) -> Option<Key> {
    Some(match (last, number) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'H', _) | (b'~', "1" | "7") => Key::Home,
        (b'F', _) | (b'~', "4" | "8") => Key::End,
        (b'~', "5") => Key::PageUp,
        (b'~', "6") => Key::PageDown,
        (b'P'..=b'S', _) => Key::Function(last - b'P' + 1),
        (b'~', number) => Key::Function(match number.parse::<u8>().ok()? {
            n @ 11..=15 => n - 10,
            n @ 17..=21 => n - 11,
            n @ 23..=24 => n - 12,
            _ => return None,
        }),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut parser = Parser::default();
        let mut keys = parser.feed(bytes);
        keys.extend(parser.end());
        keys
    }

    #[test]
    fn keys_of_several_terminals() {
        for (bytes, key) in [
            (&b"q"[..], Key::Char('q')),
            ("ü".as_bytes(), Key::Char('ü')),
            (b"\r", Key::Enter),
            (b"\x7f", Key::Backspace),
            (b"\x03", Key::Ctrl('c')),
            (b"\x1a", Key::Ctrl('z')),
            (b"\x1b", Key::Escape),
            (b"\x1b[A", Key::Up),
            (b"\x1bOB", Key::Down),
            (b"\x1b[1;5A", Key::Up),
            (b"\x1b[1~", Key::Home),
            (b"\x1b[F", Key::End),
            (b"\x1b[5~", Key::PageUp),
            (b"\x1b[6~", Key::PageDown),
            (b"\x1bOP", Key::Function(1)),
            (b"\x1b[[C", Key::Function(3)),
            (b"\x1b[14~", Key::Function(4)),
            (b"\x1b[17~", Key::Function(6)),
            (b"\x1b[21~", Key::Function(10)),
        ] {
            assert_eq!(keys(bytes), [key], "{bytes:?}");
        }
        let typed = keys(b"a\x1b[B\x1b\x1b[Bb");
        let expected = [
            Key::Char('a'),
            Key::Down,
            Key::Escape,
            Key::Down,
            Key::Char('b'),
        ];
        assert_eq!(typed, expected);
    }

    #[test]
    fn a_key_may_come_in_parts() {
        let mut parser = Parser::default();
        assert_eq!(parser.feed(b"\x1b"), []);
        assert!(parser.is_within());
        assert_eq!(parser.feed(b"[2"), []);
        assert_eq!(parser.feed(b"1~\xc3"), [Key::Function(10)]);
        assert_eq!(parser.feed(b"\xbcx"), [Key::Char('ü'), Key::Char('x')]);
        assert!(!parser.is_within());
    }

    #[test]
    fn what_is_no_key_does_no_harm() {
        for bytes in [
            &b"\x1b[99~"[..],
            b"\x1b[c",
            b"\x1b[1;",
            b"\x1b[[Z",
            b"\x1bx",
            b"\xff\xfe",
            b"\xe2\x28",
            b"\0",
            b"\xc2\x9b",
        ] {
            let found = keys(bytes);
            let harmless = |key: &Key| matches!(key, Key::Char('('));
            assert!(found.iter().all(harmless), "{bytes:?} {found:?}");
        }
        // A sequence without an end is dropped, and what comes behind it is read.
        let mut parser = Parser::default();
        parser.feed(&[b"\x1b[".as_slice(), &[b'1'; 300]].concat());
        assert_eq!(parser.feed(b"q"), [Key::Char('q')]);
    }

    #[test]
    fn a_terminal_that_is_gone_is_told_once() {
        let (sender, receiver) = mpsc::channel();
        read(&b"ab"[..], &sender);
        drop(sender);
        let told: Vec<Event> = receiver.iter().collect();
        assert_eq!(told, [Event::Bytes(b"ab".to_vec()), Event::Gone]);
    }
}
