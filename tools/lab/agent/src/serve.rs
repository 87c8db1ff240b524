// SPDX-License-Identifier: GPL-2.0

//! The server: requests in, replies out, every request in a thread of its own.

use crate::guest;
use crate::task::Task;
use anyhow::{Context, Result, bail};
use lab_wire::{Answer, Ask, Command, Joiner, Piece, Reply, receive, send};
use nix::sys::signal::Signal;
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long a killed command may take to go away before it is left alone.
const KILL_GRACE: Duration = Duration::from_secs(5);

/// Background commands whose output is kept, two open files each. One more takes the place of the oldest one that has ended.
const KEPT: usize = 256;

struct Server {
    out: Mutex<File>,
    tasks: Mutex<HashMap<u64, Arc<Task>>>,
}

/// Serves until the channel closes.
pub(crate) fn serve() -> Result<()> {
    let settings = guest::settings()?;
    let path = settings
        .get("channel")
        .context("no lab.channel= on the command line")?;
    let channel = open_channel(path).with_context(|| path.clone())?;
    let server = Arc::new(Server {
        out: Mutex::new(channel.try_clone()?),
        tasks: Mutex::new(HashMap::new()),
    });
    server.reply(
        0,
        Answer::Hello {
            release: guest::release()?,
        },
    )?;
    let mut input = BufReader::new(channel);
    let mut joiner = Joiner::default();
    while let Some(piece) = receive::<Piece>(&mut input)? {
        server.reply(0, Answer::Ack)?;
        let Some(request) = joiner.push(piece)? else {
            continue;
        };
        let server = Arc::clone(&server);
        thread::spawn(move || {
            let answer =
                server
                    .answer(request.id, request.ask)
                    .unwrap_or_else(|e| Answer::Failed {
                        error: format!("{e:#}"),
                    });
            if let Err(e) = server.reply(request.id, answer) {
                guest::log(&format!("lab-agent: reply: {e:#}"));
            }
        });
    }
    Ok(())
}

/// The device of the virtio serial port with this name; it appears with its driver's probe, which
/// may come after init's start.
fn find_port(name: &str) -> Result<PathBuf> {
    for _ in 0..400 {
        for entry in fs::read_dir("/sys/class/virtio-ports")
            .into_iter()
            .flatten()
            .flatten()
        {
            let device = Path::new("/dev").join(entry.file_name());
            if fs::read_to_string(entry.path().join("name")).is_ok_and(|n| n.trim() == name)
                && device.exists()
            {
                return Ok(device);
            }
        }
        thread::sleep(Duration::from_millis(25));
    }
    bail!("no virtio serial port {name}")
}

/// Opens the serial channel, a device or a virtio port's name; a tty is made raw, so that bytes
/// pass as they are.
fn open_channel(name: &str) -> Result<File> {
    let path = if name.starts_with('/') {
        PathBuf::from(name)
    } else {
        find_port(name)?
    };
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if let Ok(mut mode) = tcgetattr(&file) {
        cfmakeraw(&mut mode);
        tcsetattr(&file, SetArg::TCSANOW, &mode)?;
    }
    Ok(file)
}

impl Server {
    fn reply(&self, id: u64, answer: Answer) -> Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        send(&mut *out, &Reply { id, answer })?;
        Ok(())
    }

    fn task(&self, id: u64) -> Result<Arc<Task>> {
        let tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks
            .get(&id)
            .cloned()
            .context("no such background command")
    }

    fn start(&self, command: &Command) -> Result<Arc<Task>> {
        let (task, child) = Task::start(command)?;
        let task = Arc::new(task);
        let reaper = Arc::clone(&task);
        thread::spawn(move || reaper.reap(child));
        Ok(task)
    }

    fn answer(&self, id: u64, ask: Ask) -> Result<Answer> {
        match ask {
            Ask::Ping => Ok(Answer::Done),
            Ask::Run { command, limit_ms } => {
                let task = self.start(&command)?;
                if task.wait(Duration::from_millis(limit_ms)) {
                    return task.report(false);
                }
                task.kill(Signal::SIGKILL as i32)?;
                task.wait(KILL_GRACE);
                task.report(true)
            }
            Ask::Spawn(command) => {
                let task = self.start(&command)?;
                let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
                if tasks.len() >= KEPT {
                    let ended = tasks.iter().filter(|(_, task)| task.has_ended());
                    if let Some(oldest) = ended.map(|(id, _)| *id).min() {
                        tasks.remove(&oldest);
                    }
                }
                tasks.insert(id, task);
                Ok(Answer::Started { task: id })
            }
            Ask::Wait { task, limit_ms } => {
                let task = self.task(task)?;
                let ended = task.wait(Duration::from_millis(limit_ms));
                task.report(!ended)
            }
            Ask::Kill { task, signal } => {
                self.task(task)?.kill(signal)?;
                Ok(Answer::Done)
            }
            Ask::Peek { task } => self.task(task)?.report(false),
            Ask::Read { path } => Ok(Answer::File {
                data: fs::read(&path).with_context(|| path.clone())?,
            }),
            Ask::Write { path, data } => {
                write(&path, &data).with_context(|| path.clone())?;
                Ok(Answer::Done)
            }
            Ask::PowerOff => {
                self.reply(id, Answer::Done)?;
                guest::power_off()
            }
            Ask::Reset => {
                guest::reset()?;
                Ok(Answer::Done)
            }
        }
    }
}

/// One write, as procfs and sysfs files want it.
fn write(path: &str, data: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)?;
    file.write_all(data)?;
    Ok(())
}
