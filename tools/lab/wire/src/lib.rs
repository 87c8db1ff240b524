// SPDX-License-Identifier: GPL-2.0

//! Messages between the lab and the agent in a guest.
//!
//! One JSON object per line each way. Every request carries an id and every reply repeats it, so
//! that many commands can be under way at once. Byte strings travel as base64.
//!
//! Requests travel in small [`Piece`]s, each sent when the one before was acknowledged: a tty of
//! User Mode Linux that is ever throttled, because some 4000 bytes wait in it, is never read again
//! (line_throttle() takes its descriptor out of the poll set, line_unthrottle() does not put it
//! back). Replies need no such care.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

mod bytes {
    //! serde helper: `Vec<u8>` as a base64 string.

    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(v: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&STANDARD.encode(v))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        STANDARD
            .decode(String::deserialize(d)?)
            .map_err(D::Error::custom)
    }
}

/// A command for the guest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Program and arguments; the program is looked up in the guest's `PATH`.
    pub argv: Vec<String>,
    /// Network namespace by its `ip netns` name; none is the initial one.
    pub netns: Option<String>,
    /// Variables on top of the agent's own.
    pub env: Vec<(String, String)>,
    /// Standard input of the command.
    #[serde(with = "bytes")]
    pub stdin: Vec<u8>,
}

/// A request of the lab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Is anyone there? Answered with [`Answer::Done`].
    Ping,
    /// Run a command to its end, for `limit_ms` milliseconds at most. [`Answer::Exited`].
    Run {
        /// The command.
        command: Command,
        /// After so many milliseconds its whole session is killed.
        limit_ms: u64,
    },
    /// Start a command in the background. [`Answer::Started`].
    Spawn(Command),
    /// Wait for a background command. [`Answer::Exited`], or with `timed_out` it runs on.
    Wait {
        /// From [`Answer::Started`].
        task: u64,
        /// How long to wait, in milliseconds.
        limit_ms: u64,
    },
    /// Signal a background command's session. [`Answer::Done`].
    Kill {
        /// From [`Answer::Started`].
        task: u64,
        /// Signal number.
        signal: i32,
    },
    /// Output of a background command up to now. [`Answer::Exited`] with no status.
    Peek {
        /// From [`Answer::Started`].
        task: u64,
    },
    /// Read a file. [`Answer::File`].
    Read {
        /// Absolute path in the guest.
        path: String,
    },
    /// Write a file: procfs and sysfs files take it in one write. [`Answer::Done`].
    Write {
        /// Absolute path in the guest.
        path: String,
        /// The file's new content.
        #[serde(with = "bytes")]
        data: Vec<u8>,
    },
    /// Switch the machine off. [`Answer::Done`] comes first.
    PowerOff,
    /// Restart the machine at once, as a reset button would. No answer.
    Reset,
}

/// An answer of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Sent unasked with id 0 when the agent is ready to serve.
    Hello {
        /// The guest's kernel release.
        release: String,
    },
    /// Sent with id 0 for every [`Piece`] received: the next one may come.
    Ack,
    /// Done, nothing to tell.
    Done,
    /// A command's end, or its state.
    Exited {
        /// Exit code, if it left by itself.
        code: Option<i32>,
        /// Signal that ended it.
        signal: Option<i32>,
        /// The time limit struck.
        timed_out: bool,
        /// Standard output.
        #[serde(with = "bytes")]
        stdout: Vec<u8>,
        /// Standard error.
        #[serde(with = "bytes")]
        stderr: Vec<u8>,
    },
    /// A background command runs.
    Started {
        /// Its handle.
        task: u64,
    },
    /// A file's content.
    File {
        /// All of it.
        #[serde(with = "bytes")]
        data: Vec<u8>,
    },
    /// The request could not be served.
    Failed {
        /// Why.
        error: String,
    },
}

/// A request on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Chosen by the lab, from 1.
    pub id: u64,
    /// The request.
    pub ask: Ask,
}

/// A reply on the wire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reply {
    /// The request's id; 0 for what nobody asked for.
    pub id: u64,
    /// The answer.
    pub answer: Answer,
}

/// Most bytes of a request in one piece.
const PIECE_MAX: usize = 600;

/// A part of a request's JSON text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    #[serde(with = "bytes")]
    data: Vec<u8>,
    last: bool,
}

/// Takes a request apart.
pub fn split(request: &Request) -> io::Result<Vec<Piece>> {
    let text = serde_json::to_vec(request)?;
    let count = text.len().div_ceil(PIECE_MAX);
    Ok(text
        .chunks(PIECE_MAX)
        .enumerate()
        .map(|(n, data)| Piece {
            data: data.to_vec(),
            last: n + 1 == count,
        })
        .collect())
}

/// Puts requests together again.
#[derive(Debug, Default)]
pub struct Joiner {
    text: Vec<u8>,
}

impl Joiner {
    /// Takes the next piece; the request if it was the last one.
    pub fn push(&mut self, piece: Piece) -> io::Result<Option<Request>> {
        self.text.extend(piece.data);
        if !piece.last {
            return Ok(None);
        }
        let text = std::mem::take(&mut self.text);
        Ok(Some(serde_json::from_slice(&text)?))
    }
}

/// Sends one message and flushes.
pub fn send<T: Serialize>(out: &mut impl Write, message: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line)?;
    out.flush()
}

/// Receives the next message; `None` at the end of the stream.
///
/// Lines that are no message (a kernel line that strayed into the channel, a line cut by a reset)
/// are skipped: the other side's time limit covers a message lost that way.
pub fn receive<T: for<'a> Deserialize<'a>>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        if let Ok(message) = serde_json::from_slice(line.trim_ascii()) {
            return Ok(Some(message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn request(stdin: Vec<u8>) -> Request {
        Request {
            id: 7,
            ask: Ask::Run {
                command: Command {
                    argv: vec!["cat".into(), "a b".into()],
                    netns: Some("h0".into()),
                    env: vec![("A".into(), "é\n".into())],
                    stdin,
                },
                limit_ms: 5,
            },
        }
    }

    #[test]
    fn requests_come_in_small_pieces() {
        for size in [0, 1, 500, 5000] {
            let sent = request(vec![0xa5; size]);
            let mut joiner = Joiner::default();
            let mut got = None;
            for piece in split(&sent).expect("serializes") {
                assert_eq!(got, None);
                let mut line = Vec::new();
                send(&mut line, &piece).expect("writes to memory");
                assert!(line.len() < 1024);
                got = joiner.push(piece).expect("joins");
            }
            assert_eq!(got, Some(sent));
        }
    }

    #[test]
    fn messages_survive_the_wire() {
        let sent = request(vec![0, 10, 13, 255]);
        let mut buf = Vec::new();
        send(&mut buf, &sent).expect("writes to memory");
        assert_eq!(buf.iter().filter(|b| **b == b'\n').count(), 1);
        let got: Option<Request> = receive(&mut Cursor::new(buf)).expect("reads from memory");
        assert_eq!(got, Some(sent));
    }

    #[test]
    fn noise_is_skipped() {
        let mut buf = b"[    0.1] random: crng init done\r\n{\"id\":3,\n\n".to_vec();
        let sent = Reply {
            id: 3,
            answer: Answer::Done,
        };
        send(&mut buf, &sent).expect("writes to memory");
        let mut input = Cursor::new(buf);
        assert_eq!(receive::<Reply>(&mut input).expect("reads"), Some(sent));
        assert_eq!(receive::<Reply>(&mut input).expect("reads"), None);
    }
}
