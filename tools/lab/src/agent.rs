// SPDX-License-Identifier: GPL-2.0

//! The lab's end of the channel to a guest's agent.

use crate::console::Console;
use anyhow::{Context, Result, anyhow, bail};
use lab_wire::{Answer, Ask, Reply, Request, receive, send, split};
use std::collections::HashMap;
use std::io::BufReader;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

/// How often a waiting request looks at the console.
const GLANCE: Duration = Duration::from_millis(50);
/// After the first line of a fatal report, the rest of it is given this long to arrive.
const SETTLE: Duration = Duration::from_millis(500);
/// The agent's reply may come this much later than the command's own time limit.
pub(crate) const REPLY_GRACE: Duration = Duration::from_secs(20);

type Pending = Arc<Mutex<HashMap<u64, Sender<Answer>>>>;

/// The way to the agent: a piece is sent when the one before was acknowledged.
struct Out {
    stream: UnixStream,
    acks: Receiver<()>,
}

/// A connection to an agent.
pub(crate) struct Agent {
    out: Mutex<Out>,
    next: AtomicU64,
    pending: Pending,
    hello: Mutex<Receiver<String>>,
    console: Console,
    end: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Agent {
    pub(crate) fn new(stream: UnixStream, console: Console, lifetime: Duration) -> Result<Agent> {
        let pending: Pending = Arc::default();
        let (tx, hello) = channel();
        let (ack, acks) = channel();
        let input = stream.try_clone().context("channel")?;
        let answers = Arc::clone(&pending);
        thread::spawn(move || {
            let mut input = BufReader::new(input);
            while let Ok(Some(reply)) = receive::<Reply>(&mut input) {
                if let Answer::Hello { release } = reply.answer {
                    // A new boot: what the old one was asked will not be answered.
                    lock(&answers).clear();
                    if tx.send(release).is_err() {
                        break;
                    }
                } else if reply.answer == Answer::Ack {
                    if ack.send(()).is_err() {
                        break;
                    }
                } else if let Some(to) = lock(&answers).remove(&reply.id) {
                    // The one who asked may have given up.
                    let _ = to.send(reply.answer);
                }
            }
            lock(&answers).clear();
        });
        Ok(Agent {
            out: Mutex::new(Out { stream, acks }),
            next: AtomicU64::new(1),
            pending,
            hello: Mutex::new(hello),
            console,
            end: Instant::now() + lifetime,
        })
    }

    /// Waits until the agent serves; its kernel's release.
    pub(crate) fn wait_hello(&self, limit: Duration) -> Result<String> {
        let hello = lock(&self.hello);
        self.watch(&hello, limit, "boot")
    }

    /// Asks, and waits `limit` at most for the answer.
    pub(crate) fn ask(&self, ask: Ask, limit: Duration) -> Result<Answer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (tx, rx) = channel();
        lock(&self.pending).insert(id, tx);
        let what = format!("{ask:?}");
        if let Err(e) = self.send(&Request { id, ask }, &what) {
            lock(&self.pending).remove(&id);
            return Err(e);
        }
        let answer = self.watch(&rx, limit, &what);
        lock(&self.pending).remove(&id);
        match answer? {
            Answer::Failed { error } => bail!("{error}"),
            answer => Ok(answer),
        }
    }

    /// Sends a request, piece by piece.
    fn send(&self, request: &Request, what: &str) -> Result<()> {
        let mut out = lock(&self.out);
        // Those of requests that were told, or of a boot before this one.
        while out.acks.try_recv().is_ok() {}
        for piece in split(request)? {
            if let Err(e) = send(&mut out.stream, &piece) {
                return Err(self.gone(&format!("send: {e}")));
            }
            self.watch(&out.acks, REPLY_GRACE, what)?;
        }
        Ok(())
    }

    /// Sends a short request without waiting for anything, to a guest that may be dead. Not while
    /// another request is on its way: one that gets stuck there would keep this one waiting.
    pub(crate) fn tell(&self, ask: Ask) -> Result<()> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut out = match self.out.try_lock() {
            Ok(out) => out,
            Err(TryLockError::Poisoned(p)) => p.into_inner(),
            Err(TryLockError::WouldBlock) => bail!("the channel is busy"),
        };
        for piece in split(&Request { id, ask })? {
            send(&mut out.stream, &piece).context("channel")?;
        }
        Ok(())
    }

    /// Waits on a channel with one eye on the console.
    fn watch<T>(&self, rx: &Receiver<T>, limit: Duration, what: &str) -> Result<T> {
        let deadline = (Instant::now() + limit).min(self.end);
        loop {
            match rx.recv_timeout(GLANCE) {
                Ok(v) => return Ok(v),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone(what)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.console.fatal().is_some() {
                thread::sleep(SETTLE);
                return Err(anyhow!(self.console.fatal().unwrap_or_default()));
            }
            if self.console.is_closed() {
                return Err(self.gone(what));
            }
            if Instant::now() > deadline {
                self.ask_for_states();
                let why = if deadline == self.end {
                    "the scenario takes too long"
                } else {
                    "the guest does not answer in time"
                };
                bail!(
                    "{why} ({limit:?}): {what}\n{}\nlog: {}",
                    self.console.tail(60),
                    self.console.path().display()
                );
            }
        }
    }

    /// Has the kernel print what all tasks wait for, if it still can.
    fn ask_for_states(&self) {
        for key in ["t", "w"] {
            let _ = self.tell(Ask::Write {
                path: "/proc/sysrq-trigger".into(),
                data: key.into(),
            });
        }
        thread::sleep(Duration::from_secs(2));
    }

    fn gone(&self, what: &str) -> anyhow::Error {
        thread::sleep(SETTLE);
        if let Err(report) = self.console.verdict() {
            return report.context(format!("the machine is gone: {what}"));
        }
        anyhow!(
            "the machine is gone: {what}\n{}\nlog: {}",
            self.console.tail(40),
            self.console.path().display()
        )
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Ends the reader thread, which holds a clone of the stream.
        let _ = lock(&self.out).stream.shutdown(Shutdown::Both);
    }
}
