// SPDX-License-Identifier: GPL-2.0

//! The program, which is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ipoibctl::main()
}
