// SPDX-License-Identifier: GPL-2.0

//! Captures of simulated adapters, which ib_hwsim makes itself.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Room for packets, which the kernel holds until the capture ends.
const ROOM: usize = 16 << 20;
/// Lengths of the header of a file and of a record.
pub(super) const FILE: usize = 24;
const RECORD: usize = 16;
/// The beginning of a file whose times are in nanoseconds, little-endian.
const MAGIC: [u8; 4] = [0x4d, 0x3c, 0xb2, 0xa1];

/// A capture at an adapter. It ends when it is dropped.
pub(super) struct Hwsim {
    dir: PathBuf,
    /// Bytes of the file that were read.
    read: usize,
    lost: u64,
}

/// Names in a directory; none if it is not there.
fn names(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Calls `each` with the time and the bytes of each packet in a file that is whole, from byte `from` on. Returns where the
/// first one begins that is not.
///
/// # Errors
///
/// The file is none of a capture, or is shorter than it was; those of `each`.
pub(super) fn records(
    bytes: &[u8],
    from: usize,
    each: &mut impl FnMut(Duration, &[u8]) -> Result<()>,
) -> Result<usize> {
    ensure!(bytes.starts_with(&MAGIC), "no capture");
    let Some(mut rest) = bytes.get(from..) else {
        bail!("somebody else has ended the capture");
    };
    while let Some((header, after)) = rest.split_at_checked(RECORD) {
        let number = |at: usize| {
            let bytes = header.get(at..)?.first_chunk()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let (Some(seconds), Some(nanoseconds), Some(length)) = (number(0), number(4), number(8))
        else {
            break;
        };
        let Some((packet, after)) = after.split_at_checked(usize::try_from(length)?) else {
            break;
        };
        each(Duration::new(seconds.into(), nanoseconds), packet)?;
        rest = after;
    }
    Ok(bytes.len() - rest.len())
}

impl Hwsim {
    /// Begins a capture at the simulated adapter of an RDMA device; none if that is no simulated one.
    ///
    /// # Errors
    ///
    /// The process may not do that, or there is a capture already.
    pub(super) fn new(root: &Path, device: &str) -> Result<Option<Hwsim>> {
        let fabrics = names(&root.join("sys/kernel/config/ib_hwsim"));
        let mut adapters = fabrics
            .iter()
            .flat_map(|fabric| names(&fabric.join("hcas")));
        let is_it = |dir: &PathBuf| {
            fs::read_to_string(dir.join("device")).is_ok_and(|name| name.trim() == device)
        };
        let Some(dir) = adapters.find(is_it) else {
            return Ok(None);
        };
        let file = dir.join("capture");
        let now = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        ensure!(
            now.trim() == "0",
            "{} has a capture already: end it by echo 0 >{}",
            device,
            file.display()
        );
        fs::write(&file, ROOM.to_string()).with_context(|| file.display().to_string())?;
        Ok(Some(Hwsim {
            dir,
            read: FILE,
            lost: 0,
        }))
    }

    /// Calls `each` with the time and the bytes of each packet since the last call.
    ///
    /// # Errors
    ///
    /// The adapter was switched off, or somebody else has ended the capture; those of `each`.
    pub(super) fn poll(
        &mut self,
        mut each: impl FnMut(Duration, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let path = self.dir.join("capture.pcap");
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        self.read =
            records(&bytes, self.read, &mut each).with_context(|| path.display().to_string())?;
        let lost = fs::read_to_string(self.dir.join("capture_dropped")).unwrap_or_default();
        self.lost = lost.trim().parse().unwrap_or(self.lost);
        Ok(())
    }

    /// Packets for which there was no room, from the beginning.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for Hwsim {
    fn drop(&mut self) {
        // It may be gone.
        let _ = fs::write(self.dir.join("capture"), "0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HCA: &str = "sys/kernel/config/ib_hwsim/star/hcas/h1";

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join(HCA);
        fs::create_dir_all(&dir).expect("directories");
        for (name, text) in [
            ("device", "hwsim0\n"),
            ("capture", "0\n"),
            ("capture_dropped", "0\n"),
        ] {
            fs::write(dir.join(name), text).expect("a file");
        }
        root
    }

    fn record(seconds: u32, bytes: &[u8]) -> Vec<u8> {
        let length = u32::try_from(bytes.len()).expect("it is short");
        let mut record: Vec<u8> = [seconds, 7, length, length]
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        record.extend(bytes);
        record
    }

    fn poll(capture: &mut Hwsim) -> Result<Vec<(Duration, Vec<u8>)>> {
        let mut found = Vec::new();
        capture.poll(|time, packet| {
            found.push((time, packet.to_vec()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn packets_come_once_and_whole() {
        let root = root();
        let file = |name: &str| root.path().join(HCA).join(name);
        assert!(Hwsim::new(root.path(), "mlx5_0").expect("none").is_none());
        let mut capture = Hwsim::new(root.path(), "hwsim0")
            .expect("a capture")
            .expect("one");
        assert_eq!(
            fs::read_to_string(file("capture")).expect("text"),
            ROOM.to_string()
        );
        let mut bytes = MAGIC.to_vec();
        bytes.resize(FILE, 0);
        bytes.extend(record(1, b"one"));
        let second = record(2, b"second");
        bytes.extend(&second[..9]);
        fs::write(file("capture.pcap"), &bytes).expect("written");
        assert_eq!(
            poll(&mut capture).expect("one"),
            [(Duration::new(1, 7), b"one".to_vec())]
        );
        assert!(poll(&mut capture).expect("none").is_empty());
        bytes.extend(&second[9..]);
        fs::write(file("capture.pcap"), &bytes).expect("written");
        fs::write(file("capture_dropped"), "3\n").expect("written");
        assert_eq!(
            poll(&mut capture).expect("one"),
            [(Duration::new(2, 7), b"second".to_vec())]
        );
        assert_eq!(capture.lost(), 3);
        fs::write(file("capture.pcap"), &bytes[..FILE]).expect("written");
        assert!(poll(&mut capture).is_err());
        drop(capture);
        assert_eq!(fs::read_to_string(file("capture")).expect("text"), "0");
    }

    #[test]
    fn a_capture_of_somebody_else_is_left_alone() {
        let root = root();
        let file = root.path().join(HCA).join("capture");
        fs::write(&file, "4096\n").expect("written");
        assert!(Hwsim::new(root.path(), "hwsim0").is_err());
        assert_eq!(fs::read_to_string(&file).expect("text"), "4096\n");
    }
}
