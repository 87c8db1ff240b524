// SPDX-License-Identifier: GPL-2.0

//! Counts of the instructions of a guest: a plugin of the emulator (`tools/lab/count`) has a counter for each
//! instruction of its kernel.

use crate::layout::Layout;
use crate::step::Job;
use anyhow::{Context, Result, ensure};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The plugin, and what has it write its counts.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    dir: PathBuf,
}

impl Counter {
    /// Builds both.
    pub(super) fn build(layout: &Layout) -> Result<Counter> {
        let dir = layout.own.join("count");
        fs::create_dir_all(&dir)?;
        let source = layout.tools().join("count");
        for (name, arguments) in [
            ("count", &["-shared", "-fPIC", "-o", "count.so"][..]),
            ("mark", &["-static", "-o", "mark"]),
        ] {
            Job::new(layout, name, "build the counter of instructions", "")?.run(
                Command::new("clang")
                    .args(["-O2", "-Wall", "-Werror"])
                    .args(arguments)
                    .arg(source.join(format!("{name}.c")))
                    .current_dir(&dir),
            )?;
        }
        Ok(Counter { dir })
    }

    /// QEMU's argument.
    pub(super) fn plugin(&self) -> String {
        let path = |name| self.dir.join(name).display().to_string();
        format!("{},out={}", path("count.so"), path("counts"))
    }

    /// A guest's shell command that runs `command` between two marks, behind which the guest's clock does not
    /// go on before the counts are written.
    pub(super) fn between_marks(&self, command: &str) -> String {
        let mark = self.dir.join("mark");
        let mark = mark.display();
        format!("set -e\n{mark}\n{command}\n{mark}\n")
    }

    /// Takes the counts at the two marks, of which there must be no more.
    pub(super) fn take(&self) -> Result<Counts> {
        let mut files: Vec<(u32, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let number = name.and_then(|name| name.strip_prefix("counts.")?.parse().ok());
            files.extend(number.map(|number| (number, path)));
        }
        files.sort();
        let counts = match &files[..] {
            [(_, before), (_, after)] => Counts::difference(&read(before)?, &read(after)?),
            _ => anyhow::bail!("{} marks, not two", files.len()),
        };
        self.clear()?;
        counts
    }

    /// Forgets the counts of earlier marks.
    pub(super) fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path
                .extension()
                .is_some_and(|e| e.to_str().is_some_and(is_number))
            {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

/// How often each instruction of the kernel was executed between two marks, by its address; those of user
/// space have the address 0.
#[derive(Debug)]
pub(super) struct Counts(HashMap<u64, u64>);

impl Counts {
    /// Of what the plugin wrote at the two marks.
    pub(super) fn difference(before: &str, after: &str) -> Result<Counts> {
        let before = parse(before)?;
        let mut counts = parse(after)?;
        for (address, count) in &mut counts {
            let earlier = before.get(address).copied().unwrap_or(0);
            *count = count.checked_sub(earlier).context("a counter went back")?;
        }
        counts.retain(|_, count| *count > 0);
        ensure!(!counts.is_empty(), "nothing was executed");
        Ok(Counts(counts))
    }

    /// Sums them up by symbol: the module or `kernel`, the symbol, and how many instructions. User space is one
    /// symbol of the module `user`.
    pub(super) fn by_symbol<'a>(&self, symbols: &'a Symbols) -> HashMap<(&'a str, &'a str), u64> {
        let mut sums = HashMap::new();
        for (address, count) in &self.0 {
            let place = if *address == 0 {
                ("user", "")
            } else {
                symbols.find(*address)
            };
            *sums.entry(place).or_insert(0) += count;
        }
        sums
    }
}

fn parse(text: &str) -> Result<HashMap<u64, u64>> {
    text.lines()
        .map(|line| {
            let (address, count) = line.split_once(' ')?;
            Some((u64::from_str_radix(address, 16).ok()?, count.parse().ok()?))
        })
        .collect::<Option<_>>()
        .context("the counts are not as they should be")
}

/// The functions of a kernel and its modules.
#[derive(Debug)]
pub(super) struct Symbols(Vec<(u64, String, String)>);

impl Symbols {
    /// Of the guest's `/proc/kallsyms`.
    pub(super) fn new(kallsyms: &str) -> Result<Symbols> {
        let mut symbols = Vec::new();
        for line in kallsyms.lines() {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            if kind.eq_ignore_ascii_case("t") || kind.eq_ignore_ascii_case("w") {
                let address = u64::from_str_radix(address, 16).context("an address")?;
                let module = words.next().unwrap_or("[kernel]");
                let module = module.trim_matches(['[', ']']);
                symbols.push((address, module.to_owned(), name.to_owned()));
            }
        }
        symbols.sort();
        ensure!(
            symbols.first().is_some_and(|(address, _, _)| *address > 0),
            "the guest does not tell its symbols"
        );
        Ok(Symbols(symbols))
    }

    /// The module and the function of an instruction.
    fn find(&self, address: u64) -> (&str, &str) {
        let at = self.0.partition_point(|(begin, _, _)| *begin <= address);
        match at.checked_sub(1).and_then(|at| self.0.get(at)) {
            Some((_, module, name)) => (module, name),
            None => ("kernel", "?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counts, Symbols};

    const KALLSYMS: &str = "ffffffff81000000 T _stext\n\
        ffffffff81000100 t memcpy\n\
        ffffffff81000180 D data\n\
        ffffffffc0001000 t poll\t[ipoib_rs]\n\
        ffffffffc0002000 t send\t[ipoib_rs]\n";

    #[test]
    fn counts_between_two_marks_by_symbol() {
        let before = "0 1000\nffffffff81000104 5\nffffffffc0001000 7\n";
        let after = "0 1300\nffffffff81000104 25\nffffffff81000190 1\nffffffffc0001000 7\nffffffffc0002010 3\nffffffffc0002014 3\n";
        let counts = Counts::difference(before, after).expect("they are right");
        let symbols = Symbols::new(KALLSYMS).expect("they are there");
        let mut sums: Vec<_> = counts.by_symbol(&symbols).into_iter().collect();
        sums.sort();
        assert_eq!(
            sums,
            [
                (("ipoib_rs", "send"), 6),
                (("kernel", "memcpy"), 21),
                (("user", ""), 300)
            ]
        );
    }

    #[test]
    fn counts_that_make_no_sense() {
        Counts::difference("10 5\n", "10 4\n").expect_err("one went back");
        Counts::difference("10 5\n", "10 5\n").expect_err("nothing was executed");
        Counts::difference("", "10 five\n").expect_err("no number");
        Symbols::new("0000000000000000 T _stext\n").expect_err("addresses are hidden");
    }
}
