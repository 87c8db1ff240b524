// SPDX-License-Identifier: GPL-2.0

//! Standard output: lines, in colour and folded at the width of the terminal if it is one.

use crate::rules::{Finding, Severity};
use crate::sys;
use anyhow::Result;
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};

/// Width of a terminal that does not tell its own.
const WIDTH: usize = 80;

/// A variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns true if the terminal can do no more than print.
pub(crate) fn is_dumb() -> bool {
    variable("TERM").is_none_or(|term| term == "dumb")
}

/// Returns true if standard output has colours: not with NO_COLOR (no-color.org), on a dumb terminal and in a pipe.
pub(crate) fn has_colours() -> bool {
    std::io::stdout().is_terminal() && !is_dumb() && variable("NO_COLOR").is_none()
}

/// Text that is printed at once.
pub(crate) struct Screen {
    text: String,
    colour: bool,
    /// Lines are folded at so many characters; none in a pipe.
    width: Option<usize>,
}

impl Screen {
    /// As standard output is.
    pub(crate) fn stdout() -> Screen {
        let terminal = std::io::stdout().is_terminal();
        let columns = variable("COLUMNS").and_then(|columns| columns.parse().ok());
        let columns = columns.or_else(|| Some(usize::from(sys::window()?.0)));
        Screen {
            text: String::new(),
            colour: has_colours(),
            width: terminal.then(|| columns.unwrap_or(WIDTH).max(40)),
        }
    }

    /// Without colours; folded at `width` if there is one.
    pub(crate) fn plain(width: Option<usize>) -> Screen {
        Screen {
            text: String::new(),
            colour: false,
            width,
        }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// A line that begins with `head` and goes on with `words`, which are folded behind `head`.
    pub(crate) fn line(&mut self, head: &str, words: &str) {
        let (head, words) = (&Screen::clean(head), &Screen::clean(words));
        let indent = head.chars().count();
        let mut at = indent;
        self.text += head;
        for (n, word) in words.split(' ').enumerate() {
            let length = word.chars().count();
            if n > 0 && self.width.is_some_and(|width| at + 1 + length > width) {
                self.text += "\n";
                self.text += &" ".repeat(indent);
                at = indent;
            } else if n > 0 {
                self.text.push(' ');
                at += 1;
            }
            self.text += word;
            at += length;
        }
        let kept = self.text.trim_end_matches(' ').len();
        self.text.truncate(kept);
        self.text.push('\n');
    }

    /// A finding: what, how, and the command in a line of its own, which is not folded, to be copied.
    pub(crate) fn finding(&mut self, finding: &Finding) {
        let (word, colour) = match finding.severity {
            Severity::Broken => ("broken", "\x1b[31m"),
            Severity::Warning => ("warning", "\x1b[33m"),
            Severity::Hint => ("hint", "\x1b[36m"),
        };
        let about = match finding.subject.as_str() {
            "" => String::new(),
            subject => format!("{subject}: "),
        };
        let start = self.text.len();
        self.line(&format!("{word:8} "), &format!("{about}{}", finding.what));
        if self.colour {
            self.text.insert_str(start + word.len(), "\x1b[0m");
            self.text.insert_str(start, colour);
        }
        self.line(
            "         ",
            &format!("({}: {})", finding.cause, finding.how),
        );
        if !finding.fix.is_empty() {
            self.text += &format!("         # {}\n", Screen::clean(&finding.fix));
        }
    }

    /// A value as JSON, and nothing else.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        self.text = serde_json::to_string_pretty(value)?;
        self.text.push('\n');
        Ok(())
    }

    /// Text as it is.
    pub(crate) fn raw(&mut self, text: &str) {
        self.text += text;
    }

    /// Text without control characters, which names of interfaces may have: a terminal would obey them.
    fn clean(text: &str) -> String {
        text.replace(|c: char| c.is_control(), "?")
    }

    /// Prints it. A reader that has seen enough is no error.
    pub(crate) fn print(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let written = out
            .write_all(self.text.as_bytes())
            .and_then(|()| out.flush());
        match written {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_behind_their_head() {
        let mut screen = Screen::plain(Some(20));
        screen.line("head ", "one two three four five");
        assert_eq!(screen.text(), "head one two three\n     four five\n");
        let mut screen = Screen::plain(None);
        screen.line("head ", "one two three four five ");
        assert_eq!(screen.text(), "head one two three four five\n");
    }

    #[test]
    fn a_name_does_not_control_the_terminal() {
        let mut screen = Screen::plain(None);
        screen.line("a\x1b[2J ", "b\x07\n");
        assert_eq!(screen.text(), "a?[2J b??\n");
    }

    #[test]
    fn a_colour_ends() {
        let finding = Finding {
            cause: "x",
            severity: Severity::Broken,
            layer: crate::rules::Layer::Link,
            subject: "ib0".into(),
            what: "It is.".into(),
            how: "seen".into(),
            fix: "mend it".into(),
            safe: true,
        };
        let mut screen = Screen::plain(Some(80));
        screen.finding(&finding);
        let plain = screen.text().to_owned();
        assert_eq!(
            plain,
            "broken   ib0: It is.\n         (x: seen)\n         # mend it\n"
        );
        let mut screen = Screen::plain(Some(80));
        screen.colour = true;
        screen.finding(&finding);
        assert_eq!(
            screen.text().replace("\x1b[31m", "").replace("\x1b[0m", ""),
            plain
        );
        assert!(screen.text().starts_with("\x1b[31mbroken\x1b[0m "));
    }
}
