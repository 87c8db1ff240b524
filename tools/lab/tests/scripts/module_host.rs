// SPDX-License-Identifier: GPL-2.0

//! A computer on which `tools/module/build` runs: kernel and compilers are files of a few lines, which say
//! what the script asks them.

use super::{lines, outcome, wait_for_lines};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(super) const RELEASE: &str = "7.3.99-fake";

/// The configuration of a kernel that suits.
pub(super) const CONFIG: &str = r#"CONFIG_CC_VERSION_TEXT="fake-gcc-99 (Fake 99.1.0-2) 99.1.0"
CONFIG_GCC_VERSION=990100
CONFIG_CLANG_VERSION=0
CONFIG_RUSTC_VERSION_TEXT="rustc 1.99.0 (fake 2026-01-01)"
CONFIG_BINDGEN_VERSION_TEXT="bindgen 0.99.0"
CONFIG_PAHOLE_VERSION=130
CONFIG_MODULES=y
CONFIG_RUST=y
CONFIG_INET=y
CONFIG_IPV6=m
CONFIG_INFINIBAND=m
CONFIG_PAGE_POOL=y
CONFIG_INFINIBAND_VIRT_DMA=y
CONFIG_CONFIGFS_FS=m
"#;

/// Stand-in for the C compiler, as the one for rustc.
pub(super) const AUTOCONF: &str = r#"#define CONFIG_RUST 1
#define CONFIG_CC_VERSION_TEXT "fake-gcc-99 (Fake 99.1.0-2) 99.1.0"
#define CONFIG_PAHOLE_VERSION 130
#define CONFIG_OPENSSL_SUPPORTS_ML_DSA 1
"#;

/// Makefile of the headers.
pub(super) const KBUILD: &str = "\
$(if $(LLVM)$(ARCH)$(KERNELRELEASE),$(error the environment reaches Kbuild))
probe.o:
\t@echo >$(M)/probe.o
modules:
\t@echo >$(MO)/ipoib_rs.ko
\t@echo driver=$(CONFIG_INFINIBAND_IPOIB_RS) fabric=$(CONFIG_INFINIBAND_IB_HWSIM) >>$(MO)/ipoib_rs.ko
\t@cp $(MO)/ipoib_rs.ko $(MO)/ib_hwsim.ko
";

/// Makefile of the source.
pub(super) const SOURCE: &str = "\
kernelversion:
\t@echo 7.3.99
olddefconfig:
\t@true
syncconfig:
\t@mkdir -p $(O)/include/generated && cp autoconf.h $(O)/include/generated
prepare: syncconfig
\t@echo run >>$(CURDIR)/../runs
\t@mkdir -p $(O)/rust && touch $(O)/rust/libkernel.rmeta $(O)/rust/libmacros.so
";

pub(super) const RUSTC: &str = r#"case $1 in
--version) echo 'rustc 1.99.0 (fake 2026-01-01)' ;;
--print) echo "${0%/bin/*}/sysroot" ;;
esac"#;
pub(super) const BINDGEN: &str = "[ $1 != --version ] || echo 'bindgen 0.99.0'";
pub(super) const GCC: &str = "[ $1 != -dumpversion ] || echo 99";
pub(super) const SYMBOL: &str = "_RNvNtCsKern1_6kernel5print11call_printk";

/// Programs that the script may call.
const PROGRAMS: &str = "bash cat cp cut date df diff dirname echo env false find flex flock grep gzip head ln \
    make mkdir mktemp mv nproc readlink rm sed seq sh sha256sum sleep sort tail tar touch tr true xargs xz";

pub(super) struct Host {
    pub(super) dir: tempfile::TempDir,
}

impl Host {
    /// A computer that has all that it takes: headers without metadata, the source, and compilers.
    pub(super) fn new() -> Host {
        let host = Host {
            dir: tempfile::tempdir().expect("a directory"),
        };
        fs::create_dir(host.path("bin")).expect("a directory");
        for program in PROGRAMS.split_whitespace() {
            // A test that needs one that is not there says so itself.
            for dir in ["/usr/bin", "/bin", "/usr/sbin"] {
                if Path::new(dir).join(program).exists() {
                    symlink(Path::new(dir).join(program), host.path("bin").join(program))
                        .expect("a link");
                    break;
                }
            }
        }
        for tool in ["flex", "bison", "bc", "xz", "python3", "apt-get"] {
            host.program(tool, "exit 1");
        }
        host.program("uname", &format!("echo {RELEASE}"));
        host.program("gcc-99", GCC);
        host.program("rustc", RUSTC);
        host.program("bindgen", BINDGEN);
        host.program("nm", &format!("echo '                 U {SYMBOL}'"));
        host.write("sysroot/lib/rustlib/src/rust/library/core/src/lib.rs", "");

        host.write("headers/.config", CONFIG);
        host.write("headers/include/generated/autoconf.h", AUTOCONF);
        host.write(
            "headers/include/generated/utsrelease.h",
            &format!("#define UTS_RELEASE \"{RELEASE}\"\n"),
        );
        host.write("headers/include/linux/one.h", "one\n");
        host.write("headers/include/linux/two.h", "two\n");
        host.write("headers/scripts/Makefile.build", "");
        host.write(
            "headers/Module.symvers",
            &format!("0x00000000\t{SYMBOL}\tvmlinux\tEXPORT_SYMBOL_GPL\t\n"),
        );
        host.write("headers/Makefile", KBUILD);

        host.write("linux/Makefile", SOURCE);
        host.write("linux/autoconf.h", AUTOCONF);
        host.write("linux/include/linux/one.h", "one\n");
        host.write("linux/include/linux/two.h", "two\n");

        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../module");
        let status = Command::new("cp")
            .arg("-r")
            .arg(scripts)
            .arg(host.mkdir("checkout/tools").join("module"))
            .status();
        assert!(status.expect("cp").success());
        host
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn mkdir(&self, name: &str) -> PathBuf {
        fs::create_dir_all(self.path(name)).expect("a directory");
        self.path(name)
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let file = self.path(name);
        fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
        fs::write(file, text).expect("writes");
    }

    /// Writes a file anew with `from` replaced in it.
    pub(super) fn change(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(name)).expect("reads");
        assert!(text.contains(from), "{from} in {text}");
        self.write(name, &text.replace(from, to));
    }

    pub(super) fn remove(&self, name: &str) {
        let path = self.path(name);
        if path.is_dir() {
            fs::remove_dir_all(path).expect("removes");
        } else {
            fs::remove_file(path).expect("removes");
        }
    }

    pub(super) fn program_in(&self, dir: &str, name: &str, script: &str) {
        let file = self.mkdir(dir).join(name);
        // It may be a link to one of this computer's.
        let _ = fs::remove_file(&file);
        fs::write(&file, format!("#!/bin/bash\n{script}\n")).expect("writes");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    pub(super) fn program(&self, name: &str, script: &str) {
        self.program_in("bin", name, script);
    }

    /// The headers bring metadata.
    pub(super) fn with_metadata(&self) {
        self.write("headers/rust/libkernel.rmeta", "");
    }

    pub(super) fn command(&self, script: &str) -> Command {
        let mut command = Command::new(self.path(script));
        command
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("HOME", self.dir.path())
            .current_dir(self.dir.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The script, with these options.
    pub(super) fn bare(&self, options: &[&str]) -> Command {
        let mut command = self.command("checkout/tools/module/build");
        command.args(options);
        command
    }

    /// The script for the headers and the source.
    pub(super) fn build(&self, options: &[&str]) -> Command {
        let mut command = self.bare(&["--kdir", "headers", "--source", "linux"]);
        command.args(options);
        command
    }

    /// It builds; what it has said.
    pub(super) fn passes(&self, command: &mut Command) -> String {
        let (ok, text) = outcome(command.spawn().expect("starts"));
        assert!(ok, "{text}");
        let module = text.lines().next_back().unwrap_or_default();
        let name = Path::new(module).file_name().and_then(|n| n.to_str());
        assert!(
            matches!(name, Some("ipoib_rs.ko" | "ib_hwsim.ko")) && Path::new(module).exists(),
            "{text}"
        );
        assert_eq!(self.scratch(), 0, "{text}");
        text
    }

    /// It fails with one sentence that has the words `wrong`, and then lines that have the words `next`.
    pub(super) fn fails(&self, command: &mut Command, wrong: &[&str], next: &[&str]) {
        let (ok, text) = outcome(command.spawn().expect("starts"));
        assert!(!ok, "{text}");
        assert!(
            !text.contains('\u{1b}'),
            "colours without a terminal: {text}"
        );
        let sentences: Vec<&str> = text.lines().filter(|l| l.starts_with("error: ")).collect();
        assert_eq!(sentences.len(), 1, "{text}");
        for word in wrong {
            assert!(sentences[0].contains(word), "no {word:?} in {text}");
        }
        let hints: Vec<&str> = text
            .lines()
            .skip_while(|l| !l.starts_with("error: "))
            .skip(1)
            .collect();
        assert!(!hints.is_empty(), "nothing to do: {text}");
        for hint in &hints {
            assert!(hint.starts_with("       "), "after the sentence: {text}");
        }
        for word in next {
            assert!(
                hints.iter().any(|l| l.contains(word)),
                "no {word:?} to do in {text}"
            );
        }
        assert!(!text.contains(": line "), "the shell's own words: {text}");
        assert_eq!(self.scratch(), 0, "{text}");
    }

    pub(super) fn cached(&self, dir: &str) -> Vec<String> {
        fs::read_dir(self.path(".cache/ipoib_rs").join(dir))
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// How many scratch directories there are.
    pub(super) fn scratch(&self) -> usize {
        let of_runs = |name: &&String| name.starts_with("scratch.") && *name != "scratch.lock";
        self.cached("").iter().filter(of_runs).count()
    }

    /// How many trees with metadata there are, half-made ones included.
    pub(super) fn trees(&self) -> usize {
        let dir = self.path(".cache/ipoib_rs/metadata");
        let is_dir = |name: &&String| dir.join(name).is_dir();
        self.cached("metadata").iter().filter(is_dir).count()
    }

    /// How often metadata was made.
    pub(super) fn runs(&self) -> usize {
        lines(&self.path("runs"))
    }

    pub(super) fn wait_for_runs(&self, runs: usize) {
        wait_for_lines(&self.path("runs"), runs);
    }
}
