// SPDX-License-Identifier: GPL-2.0

//! How much of a stack the functions of a module take: a kernel stack has 16 KiB, and all that is called in
//! a chain, with the kernel's own functions and an interrupt at its end, has to fit.

use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

/// The most bytes for one function: what the kernel warns about in C (`FRAME_WARN` of 64-bit kernels).
const MOST: u32 = 2048;

/// Fails if a function of the module takes too much, and says which.
pub fn check(module: &Path) -> Result<()> {
    let output = Command::new("llvm-objdump")
        .args(["--disassemble", "--no-show-raw-insn"])
        .arg(module)
        .output()
        .context("llvm-objdump")?;
    ensure!(
        output.status.success(),
        "llvm-objdump: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let frames = frames(&String::from_utf8_lossy(&output.stdout));
    ensure!(
        frames.iter().any(|(_, bytes)| *bytes > 0),
        "no functions in {}",
        module.display()
    );
    let large: Vec<String> = frames
        .into_iter()
        .filter(|(name, bytes)| *bytes > MOST && !is_test(name))
        .map(|(name, bytes)| format!("{bytes} bytes of stack: {name}"))
        .collect();
    ensure!(large.is_empty(), "{}", large.join("\n"));
    Ok(())
}

/// Unit tests run alone on a stack. Their modules are `tests` and `live`.
fn is_test(name: &str) -> bool {
    ["kunit", "5tests", "4live"]
        .iter()
        .any(|part| name.contains(part))
}

/// The functions of a disassembly, with what each takes for its variables.
fn frames(text: &str) -> Vec<(String, u32)> {
    let mut frames: Vec<(String, u32)> = Vec::new();
    for line in text.lines() {
        if let Some(name) = line.strip_suffix(">:").and_then(|l| l.split_once(" <")) {
            frames.push((name.1.to_owned(), 0));
        } else if let (Some(bytes), Some(last)) = (subtraction(line), frames.last_mut()) {
            last.1 = last.1.max(bytes);
        }
    }
    frames
}

/// `subq $0x1e8, %rsp`, with a remark behind it: how much.
fn subtraction(line: &str) -> Option<u32> {
    let (_, operands) = line.split_once("\tsubq\t$0x")?;
    let (bytes, _) = operands.split_once(", %rsp")?;
    u32::from_str_radix(bytes, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Disassembly of section .text:

0000000000000040 <small>:
      40:      \tpushq\t%rbp
      41:      \tsubq\t$0x18, %rsp
      50:      \tsubq\t$0x1, %rax

0000000000000060 <none>:
      60:      \tretq

0000000000000080 <large>:
      80:      \tsubq\t$0x1368, %rsp            # imm = 0x1368
      90:      \tsubq\t$0x8, %rsp
";

    #[test]
    fn frames_are_read() {
        let expected = [("small", 0x18), ("none", 0), ("large", 0x1368)];
        let expected = expected.map(|(name, bytes)| (name.to_owned(), bytes));
        assert_eq!(frames(TEXT), expected);
    }
}
