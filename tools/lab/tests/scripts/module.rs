// SPDX-License-Identifier: GPL-2.0

//! `tools/module/build` where something is wrong: one sentence that names it, lines that say what to do,
//! and a status that is not 0.

use super::module_host::{AUTOCONF, BINDGEN, CONFIG, GCC, Host, KBUILD, RUSTC, SOURCE, SYMBOL};
use super::outcome;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

fn kill(mut child: Child) {
    let group = Pid::from_raw(i32::try_from(child.id()).expect("a number"));
    killpg(group, Signal::SIGKILL).expect("kills");
    child.wait().expect("ends");
}

#[test]
fn metadata_is_made_once_and_the_headers_stay_as_they_are() {
    let host = Host::new();
    host.passes(&mut host.build(&[]));
    let module = host.passes(&mut host.build(&[]));
    assert!(
        module.contains("/checkout/build/module/7.3.99-fake/"),
        "{module}"
    );
    assert_eq!((host.runs(), host.trees()), (1, 1));
    let makefile = fs::read_to_string(host.path("headers/Makefile")).expect("reads");
    assert_eq!(makefile, KBUILD);
    assert!(!host.path("headers/.done").exists());
    assert!(!host.path("headers/rust").exists());
}

#[test]
fn metadata_that_comes_with_the_headers_is_used() {
    let host = Host::new();
    host.with_metadata();
    host.passes(&mut host.bare(&["--kdir", "headers"]));
    assert_eq!((host.runs(), host.trees()), (0, 0));
}

#[test]
fn metadata_can_be_made_without_a_module() {
    let host = Host::new();
    let child = host.build(&["--metadata-only"]).spawn().expect("starts");
    let (ok, text) = outcome(child);
    let tree = text.lines().next_back().unwrap_or_default();
    assert!(
        ok && Path::new(tree).join("rust/libkernel.rmeta").exists(),
        "{text}"
    );
    assert_eq!((host.runs(), host.trees()), (1, 1));
    assert!(!host.path("checkout/build").exists());
}

#[test]
fn one_module_can_be_made_without_the_other() {
    let host = Host::new();
    host.with_metadata();
    let makes = |option: &str, file: &str, what: &str| {
        let mut command = host.bare(&["--kdir", "headers"]);
        let text = host.passes(command.args(option.split_whitespace()));
        let module = text.lines().next_back().unwrap_or_default();
        assert!(module.ends_with(file), "{option}: {text}");
        let made = fs::read_to_string(module).expect("reads");
        assert_eq!(made.trim(), what, "{option}");
        text
    };
    makes("", "/ipoib_rs.ko", "driver= fabric=");
    makes("--driver-only", "/ipoib_rs.ko", "driver= fabric=n");
    let text = makes("--fabric-only", "/ib_hwsim.ko", "driver=n fabric=");
    assert!(text.contains("build ib_hwsim for Linux"), "{text}");
    host.fails(
        &mut host.bare(&["--fabric-only", "--driver-only"]),
        &["leave nothing to build"],
        &["See the head of"],
    );

    // A kernel that only the driver can be built for.
    host.change("headers/.config", "CONFIG_CONFIGFS_FS=m", "");
    let text = makes("", "/ipoib_rs.ko", "driver= fabric=n");
    assert!(
        text.contains("without ib_hwsim, which needs CONFIG_CONFIGFS_FS"),
        "{text}"
    );
    host.fails(
        &mut host.bare(&["--kdir", "headers", "--fabric-only"]),
        &["without CONFIG_CONFIGFS_FS, which ib_hwsim needs"],
        &["Install a kernel that has it"],
    );
    host.change(
        "headers/.config",
        "CONFIG_PAGE_POOL=y",
        "CONFIG_CONFIGFS_FS=y",
    );
    makes("--fabric-only", "/ib_hwsim.ko", "driver=n fabric=");
}

#[test]
fn an_archive_is_a_source() {
    let host = Host::new();
    let name = "odd name:1.tar";
    let status = Command::new("tar")
        .current_dir(host.dir.path())
        .args(["--force-local", "-cf", name, "linux"])
        .status();
    assert!(status.expect("tar").success());
    host.remove("linux");
    host.passes(&mut host.bare(&["--kdir", "headers", "--source", name]));
}

#[test]
fn the_running_kernel_has_no_headers() {
    let host = Host::new();
    host.fails(
        &mut host.bare(&[]),
        &["the headers of Linux 7.3.99-fake are not installed"],
        &["apt install linux-headers-7.3.99-fake"],
    );
    host.remove("bin/apt-get");
    host.fails(
        &mut host.bare(&[]),
        &["are not installed"],
        &["package manager (Debian's packages: linux-headers-7.3.99-fake)"],
    );
}

#[test]
fn a_build_directory_that_is_none_is_named() {
    let host = Host::new();
    for kdir in ["nowhere", "headers/Makefile"] {
        host.fails(
            &mut host.bare(&["--kdir", kdir]),
            &[kdir, "is not a directory"],
            &["/lib/modules/<release>/build"],
        );
    }
    host.fails(
        &mut host.bare(&["--kdir", "linux"]),
        &["linux is not the build directory of a kernel"],
        &["O= directory"],
    );
    host.write("headers/Module.symvers", "");
    host.fails(
        &mut host.build(&[]),
        &["no Module.symvers", "not built"],
        &["make -C"],
    );
    host.remove("headers/Module.symvers");
    host.fails(&mut host.build(&[]), &["no Module.symvers"], &["make -C"]);
    host.remove("headers/include/generated/utsrelease.h");
    host.fails(
        &mut host.build(&[]),
        &["does not say its release"],
        &["Build that kernel"],
    );
}

#[test]
fn a_kernel_that_cannot_have_the_module_is_told_why() {
    let host = Host::new();
    host.fails(
        &mut host.build(&["--release", "6.12.57+deb13-amd64"]),
        &["Linux 6.12.57+deb13-amd64 is too old", "7.3"],
        &["trixie-backports"],
    );
    host.fails(&mut host.build(&["--release", "7.2.9"]), &["too old"], &[]);
    for release in ["7.4.0", "7.4-rc1-amd64", "7.10.1", "8.0"] {
        host.fails(
            &mut host.build(&["--release", release]),
            &[&format!("Linux {release} is too new")],
            &["newer version of ipoib_rs"],
        );
    }
    for option in ["MODULES", "INFINIBAND", "INET", "IPV6", "PAGE_POOL"] {
        let line = format!("CONFIG_{option}=");
        let off = format!("# CONFIG_{option} is not set ");
        host.change("headers/.config", &line, &off);
        host.fails(
            &mut host.build(&[]),
            &[&format!("without CONFIG_{option},")],
            &["Install a kernel that has it"],
        );
        host.change("headers/.config", &off, &line);
    }
    host.change(
        "headers/.config",
        "CONFIG_RUST=y",
        "# CONFIG_RUST is not set",
    );
    host.fails(
        &mut host.build(&[]),
        &["without Rust (CONFIG_RUST is not set)"],
        &["Install a kernel that has it"],
    );
}

#[test]
fn the_c_compiler_is_the_kernels() {
    let host = Host::new();
    host.remove("bin/gcc-99");
    host.program("gcc", "echo 98");
    host.fails(
        &mut host.build(&[]),
        &["was built with gcc 99 (fake-gcc-99 (Fake 99.1.0-2) 99.1.0)"],
        &["apt install gcc-99"],
    );
    host.program("fake-gcc-99", GCC);
    host.passes(&mut host.build(&[]));

    host.write(
        "headers/.config",
        &format!("{CONFIG}CONFIG_CC_IS_CLANG=y\n")
            .replace("CLANG_VERSION=0", "CLANG_VERSION=770100"),
    );
    host.fails(
        &mut host.build(&[]),
        &["was built with clang 77"],
        &["apt install clang-77 lld-77 llvm-77"],
    );
    host.program("clang", "echo 'clang version 76.1.0'");
    host.fails(&mut host.build(&[]), &["clang 77"], &["clang-77"]);
    host.write("headers/.config", "CONFIG_RUST=y\nCONFIG_MODULES=y\nCONFIG_INFINIBAND=y\nCONFIG_INET=y\nCONFIG_IPV6=y\nCONFIG_PAGE_POOL=y\n");
    host.fails(&mut host.build(&[]), &["was built with gcc"], &["gcc"]);
}

#[test]
fn rustc_is_the_kernels_to_the_letter() {
    let host = Host::new();
    host.remove("bin/rustc");
    host.fails(
        &mut host.build(&[]),
        &["was built with rustc 1.99.0 (fake 2026-01-01), and there is no rustc here"],
        &["apt install rustc"],
    );
    host.program("rustc", &RUSTC.replace("01-01", "01-02"));
    host.fails(
        &mut host.build(&[]),
        &["rustc 1.99.0 (fake 2026-01-01), and the compiler here is rustc 1.99.0 (fake 2026-01-02)"],
        &["apt policy rustc", "RUSTC"],
    );
    // Under another name, further on in PATH, where RUSTC says.
    host.program("rustc-1.99", RUSTC);
    host.passes(&mut host.build(&[]));
    host.remove("bin/rustc-1.99");
    host.program_in("other/bin", "rustc", RUSTC);
    host.write(
        "other/sysroot/lib/rustlib/src/rust/library/core/src/lib.rs",
        "",
    );
    let path = format!(
        "{}:{}",
        host.path("bin").display(),
        host.path("other/bin").display()
    );
    host.passes(host.build(&[]).env("PATH", path));
    host.passes(host.build(&[]).env("RUSTC", host.path("other/bin/rustc")));
}

#[test]
fn bindgen_is_the_kernels_and_works() {
    let host = Host::new();
    host.remove("bin/bindgen");
    host.fails(
        &mut host.build(&[]),
        &["bindgen is not installed"],
        &["apt install bindgen"],
    );
    host.program("bindgen", &BINDGEN.replace("0.99", "0.98"));
    host.fails(
        &mut host.build(&[]),
        &["was built with bindgen 0.99.0, and the one here is bindgen 0.98.0"],
        &["apt policy bindgen", "BINDGEN"],
    );
    host.program_in("other", "bindgen", BINDGEN);
    host.passes(host.build(&[]).env("BINDGEN", host.path("other/bindgen")));
    let path = format!(
        "{}:{}",
        host.path("bin").display(),
        host.path("other").display()
    );
    host.passes(host.build(&[]).env("PATH", path));
    host.program(
        "bindgen",
        "[ $1 = --version ] && echo bindgen 0.99.0 && exit; exit 101",
    );
    host.fails(
        &mut host.build(&[]),
        &["bindgen finds no libclang"],
        &["apt install libclang-dev"],
    );
    // Where the kernel's metadata is there, any version will do.
    host.with_metadata();
    host.program("bindgen", &BINDGEN.replace("0.99", "0.98"));
    host.passes(&mut host.build(&[]));
}

#[test]
fn what_metadata_is_made_with_is_named_where_it_is_missing() {
    let host = Host::new();
    for (tool, package) in [
        ("flex", "flex"),
        ("bison", "bison"),
        ("bc", "bc"),
        ("xz", "xz-utils"),
        ("python3", "python3"),
    ] {
        host.remove(&format!("bin/{tool}"));
        host.fails(
            &mut host.build(&[]),
            &[&format!("{tool} is not installed")],
            &[&format!("apt install {package}")],
        );
        host.program(tool, "exit 1");
    }
    host.remove("sysroot");
    host.fails(
        &mut host.build(&[]),
        &["the source of Rust's core library is not installed"],
        &["apt install rust-src"],
    );
    host.remove("bin/make");
    host.fails(
        &mut host.build(&[]),
        &["make is not installed"],
        &["apt install build-essential"],
    );
}

#[test]
fn a_source_that_is_not_there_is_named() {
    let host = Host::new();
    host.fails(
        &mut host.bare(&["--kdir", "headers"]),
        &["without the metadata", "its source is not installed"],
        &["apt install linux-source-7.3", "make module SOURCE="],
    );
    host.program("dpkg-query", "printf 7.3.99-1");
    host.fails(
        &mut host.bare(&["--kdir", "headers"]),
        &["its source is not installed"],
        &["apt install linux-source-7.3=7.3.99-1"],
    );
    host.fails(
        &mut host.bare(&["--kdir", "headers", "--source", "nowhere"]),
        &["there is no kernel source at nowhere"],
        &["SOURCE="],
    );
    host.write("damaged.tar.xz", "not an archive");
    host.fails(
        &mut host.bare(&["--kdir", "headers", "--source", "damaged.tar.xz"]),
        &["damaged.tar.xz could not be unpacked"],
        &["install it again"],
    );
    assert_eq!((host.runs(), host.trees()), (0, 0));
}

#[test]
fn a_source_that_is_not_that_of_the_headers_is_refused() {
    let host = Host::new();
    host.change("linux/Makefile", "7.3.99", "7.3.98");
    host.fails(
        &mut host.build(&[]),
        &["that of Linux 7.3.98", "the headers are of 7.3.99"],
        &["apt policy linux-headers-7.3.99-fake linux-source-7.3"],
    );
    host.write("linux/Makefile", SOURCE);
    host.write("linux/include/linux/two.h", "2\n");
    host.fails(
        &mut host.build(&[]),
        &[
            "not the one that the headers",
            "include/linux/two.h differs",
        ],
        &["apt policy"],
    );
    // So many that the list does not fit into a pipe.
    for i in 0..700 {
        let name = format!("include/linux/a-long-name-of-a-header-{i:04}.h");
        host.write(&format!("headers/{name}"), "headers\n");
        host.write(&format!("linux/{name}"), "source\n");
    }
    host.fails(&mut host.build(&[]), &["differs"], &["apt policy"]);
    assert_eq!(host.runs(), 0);
}

#[test]
fn headers_may_have_files_that_the_source_has_not() {
    let host = Host::new();
    host.write("headers/include/linux/of_the_distribution.h", "");
    host.passes(&mut host.build(&[]));
}

#[test]
fn a_source_that_was_configured_in_place_is_refused() {
    for left in [
        ".config",
        "include/config/auto.conf",
        "arch/x86/include/generated/asm/a.h",
    ] {
        let host = Host::new();
        host.write(&format!("linux/{left}"), "");
        host.fails(
            &mut host.build(&[]),
            &["linux was configured in place"],
            &["mrproper"],
        );
    }
}

#[test]
fn headers_that_are_not_complete_are_named() {
    let host = Host::new();
    host.remove("headers/scripts");
    host.fails(
        &mut host.build(&[]),
        &["are not complete", "has no Kbuild"],
        &["Reinstall linux-headers-7.3.99-fake"],
    );
}

#[test]
fn a_configuration_that_comes_out_differently_is_refused_before_anything_is_made() {
    let host = Host::new();
    host.change("linux/autoconf.h", "CONFIG_RUST 1", "CONFIG_TOOL 1");
    host.fails(
        &mut host.build(&[]),
        &[
            "CONFIG_RUST comes out differently here (not set)",
            "7.3.99-fake (1)",
        ],
        &["headers/.config"],
    );
    host.write("linux/autoconf.h", &AUTOCONF.replace("130", "0"));
    host.fails(
        &mut host.build(&[]),
        &[
            "CONFIG_PAHOLE_VERSION comes out differently here (0)",
            "(130)",
        ],
        &["apt install pahole"],
    );
    host.write("linux/autoconf.h", &AUTOCONF.replace("ML_DSA 1", "OTHER 1"));
    host.fails(
        &mut host.build(&[]),
        &["CONFIG_OPENSSL_SUPPORTS_ML_DSA comes out differently here (not set)"],
        &["apt install openssl"],
    );
    assert_eq!((host.runs(), host.trees()), (0, 0));
    host.write(
        "linux/autoconf.h",
        &AUTOCONF.replace("99.1.0-2", "99.1.0-3"),
    );
    host.passes(&mut host.build(&[]));
}

#[test]
fn metadata_that_cannot_be_made_shows_the_log() {
    let host = Host::new();
    host.change(
        "linux/Makefile",
        "@mkdir -p $(O)/rust",
        "@echo 'error: nonsense'; false",
    );
    let log = "metadata/7.3.99-fake.log";
    let (ok, text) = outcome(host.build(&[]).spawn().expect("starts"));
    assert!(
        !ok && text.contains("nonsense") && text.contains("could not be made"),
        "{text}"
    );
    assert!(
        text.contains(log) && host.path(".cache/ipoib_rs").join(log).exists(),
        "{text}"
    );
    host.change(
        "linux/Makefile",
        "error: nonsense",
        "mv: No space left on device",
    );
    host.fails(
        &mut host.build(&[]),
        &["the disk is full"],
        &["run it again"],
    );
    // There may be no room for the log either.
    let filled = host.path("filled");
    let filled = filled.display();
    host.program(
        "df",
        &format!("echo Avail; [ -e {filled} ] && echo 3 || echo 90000"),
    );
    host.change(
        "linux/Makefile",
        "echo 'mv: No space left on device'",
        &format!("touch {filled}"),
    );
    host.fails(
        &mut host.build(&[]),
        &["the disk is full"],
        &["run it again"],
    );
    host.program("df", "echo Avail; echo 90000");
    host.write("linux/Makefile", SOURCE);
    host.passes(&mut host.build(&[]));
}

#[test]
fn metadata_of_another_kernel_is_refused_before_the_module_is_built() {
    let host = Host::new();
    host.with_metadata();
    let other = "_RNvNtCsKern2_6kernel5print11call_printk";
    let list = |symbols: &[&str]| {
        let lines: Vec<String> = symbols.iter().map(|s| format!("echo ' U {s}'")).collect();
        host.program("nm", &lines.join("\n"));
    };
    // A symbol of another crate may come first.
    list(&["memcpy", "_RNvNtCsCore1_4core9panicking5panic", other]);
    host.write(
        "headers/Module.symvers",
        &format!(
            "0x0\t_RNvNtCsCore1_4core9panicking5panic\tvmlinux\tEXPORT_SYMBOL_GPL\t\n\
             0x0\t{SYMBOL}\tvmlinux\tEXPORT_SYMBOL_GPL\t\n"
        ),
    );
    host.fails(
        &mut host.build(&[]),
        &[
            "is not that of Linux 7.3.99-fake",
            "CsKern2_6kernel",
            "CsKern1_6kernel",
        ],
        &["rustc"],
    );
    list(&["memcpy"]);
    host.fails(
        &mut host.build(&[]),
        &["refers to no symbol"],
        &["Reinstall"],
    );
    list(&["_RNvNtCsCore1_4core9panicking5panic", SYMBOL]);
    host.passes(&mut host.build(&[]));
}

#[test]
fn metadata_that_cannot_be_read_is_told() {
    let host = Host::new();
    host.with_metadata();
    let broken = |message: &str| {
        host.write(
            "headers/Makefile",
            &KBUILD.replace("@echo >$(M)", &format!("@echo '{message}'; false #")),
        );
    };
    broken("error[E0514]: found crate `core` compiled by an incompatible version of rustc");
    host.fails(
        &mut host.build(&[]),
        &["was written by another compiler than rustc 1.99.0"],
        &["Install the rustc"],
    );
    broken("cannot find crate");
    host.fails(&mut host.build(&[]), &["cannot be used"], &["Reinstall"]);
}

#[test]
fn a_module_that_does_not_build_shows_the_log() {
    let host = Host::new();
    host.with_metadata();
    host.change(
        "headers/Makefile",
        "@echo >$(MO)",
        "@echo nonsense; false #",
    );
    let (ok, text) = outcome(host.build(&[]).spawn().expect("starts"));
    assert!(
        !ok && text.contains("nonsense") && text.contains("build.log"),
        "{text}"
    );
    host.fails(
        &mut host.build(&[]),
        &["could not be built for Linux 7.3.99-fake"],
        &["log: "],
    );
}

#[test]
fn a_build_in_place_is_in_the_way() {
    let host = Host::new();
    host.write("checkout/modules.order", "");
    host.fails(
        &mut host.build(&[]),
        &["holds the objects of a build in place"],
        &["checkout clean"],
    );
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let host = Host::new();
    host.write("file", "");
    host.fails(
        &mut host.build(&["--cache", "file"]),
        &["file cannot be written"],
        &["--cache DIR"],
    );
    host.write("cache/metadata", "");
    host.fails(
        host.build(&[]).env("IPOIB_RS_CACHE", host.path("cache")),
        &["cache cannot be written"],
        &["--cache DIR"],
    );
    host.fails(
        host.build(&[]).env_remove("HOME"),
        &["HOME is not set"],
        &["--cache DIR"],
    );
}

#[test]
fn a_checkout_that_cannot_be_written_is_left_alone() {
    let host = Host::new();
    host.write("checkout/build", "");
    let text = host.passes(&mut host.build(&[]));
    assert!(
        text.contains("/.cache/ipoib_rs/module/7.3.99-fake/ipoib_rs.ko"),
        "{text}"
    );
    host.write("file", "");
    host.fails(
        &mut host.build(&["--output", "file"]),
        &["file cannot be written"],
        &["--output DIR"],
    );
    // As where the log is another user's.
    host.mkdir("objects/build.log");
    host.fails(
        &mut host.build(&["--output", "objects"]),
        &["objects cannot be written"],
        &["--output DIR"],
    );
}

#[test]
fn a_disk_without_space_is_named() {
    let host = Host::new();
    host.program("df", "printf 'Avail\\n   5\\n'");
    host.fails(
        &mut host.build(&[]),
        &[".cache/ipoib_rs has 5 MB free, and 16 MB are needed"],
        &["--cache DIR"],
    );
    host.program("df", "printf 'Avail\\n   50\\n'");
    host.fails(
        &mut host.build(&[]),
        &["has 50 MB free, and 600 MB are needed"],
        &["IPOIB_RS_CACHE"],
    );
    host.with_metadata();
    host.fails(
        &mut host.build(&[]),
        &["has 50 MB free, and 100 MB are needed"],
        &["--output DIR"],
    );
    host.program("df", "exit 1");
    host.passes(&mut host.build(&[]));
}

#[test]
fn a_space_or_a_colon_in_a_path_is_refused() {
    let host = Host::new();
    let cannot = "cannot bear a space or a colon in a path";
    for name in ["a b", "a:b"] {
        host.fails(
            &mut host.build(&["--cache", name]),
            &[cannot, "cache", name],
            &["another place"],
        );
        host.fails(
            &mut host.build(&["--output", name]),
            &[cannot, "objects", name],
            &["another place"],
        );
        for from in ["headers", "linux", "checkout"] {
            fs::rename(host.path(from), host.path(name)).expect("renames");
            let mut command = match from {
                "headers" => host.bare(&["--kdir", name]),
                "linux" => host.bare(&["--kdir", "headers", "--source", name]),
                _ => {
                    let mut command = host.command(&format!("{name}/tools/module/build"));
                    command.args(["--kdir", "headers"]);
                    command
                }
            };
            host.fails(&mut command, &[cannot, name], &["Move it"]);
            fs::rename(host.path(name), host.path(from)).expect("renames");
        }
        assert!(!host.path(name).exists());
    }
}

#[test]
fn options_are_looked_at() {
    let host = Host::new();
    host.fails(
        &mut host.bare(&["--kernel", "x"]),
        &["there is no option --kernel"],
        &["See the head"],
    );
    for option in ["--kdir", "--release", "--source", "--cache", "--output"] {
        host.fails(
            &mut host.bare(&[option]),
            &[option, "needs a value"],
            &["See the head"],
        );
    }
}

#[test]
fn what_make_and_dkms_export_does_not_reach_kbuild() {
    let host = Host::new();
    let mut command = host.build(&[]);
    command
        .env("MAKEFLAGS", "n -- ARCH=arm64")
        .env("ARCH", "arm64")
        .env("LLVM", "1")
        .env("KERNELRELEASE", "nonsense");
    host.passes(&mut command);
}

#[test]
fn a_run_that_was_killed_does_not_stop_the_next() {
    let host = Host::new();
    host.change("linux/Makefile", "/../runs", "/../runs; sleep 60");
    let child = host.build(&[]).spawn().expect("starts");
    host.wait_for_runs(1);
    kill(child);
    assert_eq!(host.scratch(), 1);
    let half = host.path(".cache/ipoib_rs/metadata/7.3.99-fake-0123456789ab.new/rust");
    fs::create_dir_all(half).expect("a directory");
    host.write("linux/Makefile", SOURCE);
    host.passes(&mut host.build(&[]));
    assert_eq!((host.runs(), host.trees()), (2, 1));
}

#[test]
fn a_run_leaves_that_of_another_alone_and_waits_for_it() {
    let host = Host::new();
    let wait = "for i in `seq 200`; do [ -e $(CURDIR)/../go ] || sleep 0.1; done";
    host.change("linux/Makefile", "/../runs", &format!("/../runs; {wait}"));
    let first = host.build(&[]).spawn().expect("starts");
    host.wait_for_runs(1);
    let mut second = host.build(&["--output", "second"]).spawn().expect("starts");
    let mut words = BufReader::new(second.stderr.take().expect("a pipe"));
    let mut line = String::new();
    words.read_line(&mut line).expect("reads");
    assert!(line.contains("waiting for another build"), "{line}");
    assert_eq!(host.scratch(), 2);
    host.write("go", "");
    for child in [first, second] {
        let (ok, text) = outcome(child);
        assert!(ok, "{text}");
    }
    assert_eq!((host.runs(), host.trees(), host.scratch()), (1, 1, 0));
}

#[test]
fn trees_that_nobody_needs_are_removed() {
    let host = Host::new();
    let metadata = ".cache/ipoib_rs/metadata";
    let tree = |release: &str, config: &str| {
        let name = format!("{metadata}/{release}-0123456789ab");
        host.write(&format!("{name}/.done"), "");
        symlink(host.path(config), host.path(&name).join(".config")).expect("a link");
        host.path(&name)
    };
    let in_use = tree("7.3.99-fake-amd64", "headers/.config");
    let removed = tree("7.98.1-fake", "no-longer/.config");
    let of_today = tree("7.3.99-fake", "headers/.config");
    // Not a tree, though its name has the length of one.
    host.write(&format!("{metadata}/7.98.1-abcdefgh.log"), "");
    host.passes(&mut host.build(&[]));
    assert!(in_use.exists() && of_today.exists() && !removed.exists());
    assert!(host.path(metadata).join("7.98.1-abcdefgh.log").exists());

    let old = std::time::SystemTime::now() - Duration::from_secs(3 * 86400);
    let done = fs::File::options().write(true).open(of_today.join(".done"));
    done.and_then(|f| f.set_modified(old)).expect("a time");
    host.change(
        "headers/.config",
        "CONFIG_RUST=y",
        "CONFIG_RUST=y\nCONFIG_MORE=y",
    );
    host.write(
        "headers/include/generated/autoconf.h",
        &format!("{AUTOCONF}#define CONFIG_MORE 1\n"),
    );
    host.write(
        "linux/autoconf.h",
        &format!("{AUTOCONF}#define CONFIG_MORE 1\n"),
    );
    host.passes(&mut host.build(&[]));
    assert!(in_use.exists() && !of_today.exists());
}
