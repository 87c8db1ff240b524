// SPDX-License-Identifier: GPL-2.0

//! A QEMU virtual machine.
//!
//! The kernel's console is the serial port; the agent's channel is a virtio serial port behind a
//! unix socket. The root is the lab's own root directory through 9p, so that every path is the
//! same inside and outside.

use crate::accel;
use crate::machine::{Connect, Port, Spec};
use std::process::{Command, Stdio};

/// The virtio serial port's name, by which the agent finds it.
const PORT: &str = "lab.agent";

/// The command that boots `spec`, and where its channel will be.
pub(crate) fn command(spec: &Spec) -> (Command, Connect) {
    let channel = spec.dir.join(format!("{}.agent", spec.name));
    // QEMU refuses a socket file that a killed run has left.
    let _ = std::fs::remove_file(&channel);

    let mut line = vec![
        "console=ttyS0".to_owned(),
        "root=lab".to_owned(),
        "rootfstype=9p".to_owned(),
        "rootflags=trans=virtio,version=9p2000.L,cache=loose,msize=512000".to_owned(),
    ];
    line.extend(spec.command_line(PORT));

    let accel = if spec.icount {
        "tcg".to_owned()
    } else {
        accel::choose(&spec.image)
    };
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args([
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-monitor",
            "none",
        ])
        .args(["-machine", &format!("q35,accel={accel}")])
        .args(["-cpu", "max,la57=off"])
        .args([
            "-m",
            &spec.memory.to_string(),
            "-smp",
            &spec.cpus.to_string(),
        ])
        .args(["-serial", "stdio"])
        .args(["-kernel".as_ref(), spec.image.as_os_str()])
        .args(["-append", &line.join(" ")])
        .args(["-device", "virtio-rng-pci"])
        .arg("-virtfs")
        .arg(format!(
            "local,path={},mount_tag=lab,security_model=none,readonly=on,multidevs=remap",
            spec.root.display()
        ))
        .args(["-device", "virtio-serial-pci"])
        .arg("-chardev")
        .arg(format!(
            "socket,id=agent,path={},server=on,wait=on",
            channel.display()
        ))
        .args([
            "-device",
            &format!("virtserialport,chardev=agent,name={PORT}"),
        ])
        .stdin(Stdio::null());
    if let Some(initramfs) = &spec.initramfs {
        command.arg("-initrd").arg(initramfs);
    }
    if spec.icount {
        command.args(["-icount", "shift=0,sleep=off"]);
    }
    if let Some(plugin) = &spec.plugin {
        command.args(["-plugin", plugin]);
    }
    if let Some(port) = &spec.port {
        ethernet(&mut command, port, spec.number);
    }
    (command, Connect::Socket(channel))
}

/// One virtio-net card, on a wire or, with several neighbours, on a hub.
fn ethernet(command: &mut Command, port: &Port, number: u8) {
    let stream = |id: &str, rest: String| format!("stream,id={id},addr.type=unix,{rest}");
    match port {
        Port::Connect(path) => {
            command.arg("-netdev").arg(stream(
                "eth",
                format!("server=off,reconnect-ms=100,addr.path={}", path.display()),
            ));
        }
        Port::Listen(paths) if paths.is_empty() => {
            // Somebody has to take the frames, or the guest's queue fills up and holds them for ever.
            command.args(["-netdev", "user,id=eth,restrict=on"]);
        }
        Port::Listen(paths) if paths.len() == 1 => {
            command.arg("-netdev").arg(stream(
                "eth",
                format!("server=on,addr.path={}", paths[0].display()),
            ));
        }
        Port::Listen(paths) => {
            for (n, path) in paths.iter().enumerate() {
                command
                    .arg("-netdev")
                    .arg(stream(
                        &format!("s{n}"),
                        format!("server=on,addr.path={}", path.display()),
                    ))
                    .arg("-netdev")
                    .arg(format!("hubport,id=h{n},hubid=0,netdev=s{n}"));
            }
            command.args(["-netdev", "hubport,id=eth,hubid=0"]);
        }
    }
    command.arg("-device").arg(format!(
        "virtio-net-pci,netdev=eth,mac=52:54:00:1b:00:{number:02x},host_mtu=9000"
    ));
}
