// SPDX-License-Identifier: GPL-2.0

//! The lab's own promises, which every other scenario leans on. The driver is not in these.

use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Netem};
use lab::cmd::demo::{Row, rows};
use lab::scenario;
use std::time::{Duration, Instant};

scenario! {
    /// Exit status, both outputs, standard input and several commands at once.
    fn commands_come_back_whole(bed) {
        let bed = bed.hosts(1).up()?;
        let host = &bed.hosts[0];
        let output = host.run("echo out; echo err >&2; exit 7")?;
        ensure!(output.code == Some(7) && output.stdout == "out\n" && output.stderr == "err\n");
        ensure!(host.python("print(6 * 7)", &[])?.ok()? == "42\n");
        let large = host.ok("seq 200000")?;
        ensure!(large.len() == 1_288_895 && large.ends_with("\n200000\n"), "{} bytes", large.len());

        // Many times what a tty holds.
        let program = format!("# {}\nprint('end')", "x".repeat(50_000));
        ensure!(host.python(&program, &[])?.ok()? == "end\n");

        let task = host.spawn("sleep 60")?;
        let start = Instant::now();
        host.ok("true")?;
        ensure!(start.elapsed() < host.scaled(Duration::from_secs(10)), "one command waits for another");
        ensure!(task.stop()?.code.is_none());
        bed.finish()
    }
}

scenario! {
    /// More background commands than a process may have open files, one after the other, while an early one goes on.
    #[on(timed)]
    fn background_commands_may_be_many(bed) {
        let bed = bed.hosts(1).up()?;
        let host = &bed.hosts[0];
        let first = host.spawn("sleep 60")?;
        for number in 0..600 {
            let task = host.spawn("echo here").with_context(|| number.to_string())?;
            ensure!(task.wait(host.scaled(Duration::from_secs(10)))?.ok()? == "here\n");
        }
        ensure!(first.stop()?.code.is_none());
        bed.finish()
    }
}

scenario! {
    /// A command that hangs is ended, and the host lives on.
    fn time_limits_strike(bed) {
        let bed = bed.hosts(1).up()?;
        let output = bed.hosts[0].run_for("echo first; sleep 100", Duration::from_secs(1))?;
        ensure!(output.timed_out && output.stdout == "first\n");
        bed.hosts[0].ok("true")?;
        // A condition that is waited for has its last output.
        let error = bed.hosts[0].wait_until("echo run; false", Duration::from_secs(1)).err().context("it held")?;
        ensure!(format!("{error:#}").ends_with("`echo run; false`: exit code 1\nrun\n"), "{error:#}");
        bed.finish()
    }
}

scenario! {
    /// A panic ends the scenario at once, with the kernel's words.
    #[on(both)]
    fn a_panic_is_reported(bed) {
        let bed = bed.hosts(1).up()?;
        // User Mode Linux has no sysrq: there, the words alone must do.
        let error = bed.hosts[0].run(
            "echo c >/proc/sysrq-trigger ||
             echo '<0>Kernel panic - not syncing: made up' >/dev/kmsg
             sleep 60",
        ).err().context("a panic went unseen")?;
        ensure!(format!("{error:#}").contains("Kernel panic"), "{error:#}");
        Ok(())
    }
}

scenario! {
    /// A WARNING fails the scenario at its end, unless it was expected where it came; and so does one that did not come.
    #[on(both)]
    fn a_warning_is_reported(bed) {
        let bed = bed.hosts(1);
        let warn = |bed: &Bed| bed.hosts[0].ok("echo '<4>WARNING: made up by a scenario' >/dev/kmsg");
        let made_up = ["^WARNING: made up"];
        let expected = bed.clone().up()?;
        expected.hosts[0].expecting(&made_up, || warn(&expected))?;
        let never = expected.hosts[0].expecting(&made_up, || Ok(()));
        ensure!(format!("{:#}", never.err().context("none came")?).contains("did not report"));
        expected.finish()?;
        let outside = bed.up()?;
        outside.hosts[0].expecting(&made_up, || warn(&outside))?;
        warn(&outside)?;
        let error = outside.finish().err().context("a WARNING went unseen")?;
        ensure!(format!("{error:#}").contains("made up"), "{error:#}");
        Ok(())
    }
}

scenario! {
    /// A line by which opensm refuses to have a port leave a group fails the scenario at its end, unless the scenario says why.
    fn a_refused_leave_is_reported(bed) {
        let bed = bed.hosts(1);
        let refuse = |bed: &Bed| bed.hosts[0].ok("echo 'ERR 1B25: made up' >/var/log/opensm-x.log");
        let expected = bed.clone().up()?;
        expected.expect_refused_leaves("made up");
        refuse(&expected)?;
        expected.finish()?;
        let unexpected = bed.up()?;
        refuse(&unexpected)?;
        let error = unexpected.finish().err().context("a refused leave went unseen")?;
        ensure!(format!("{error:#}").contains("made up"), "{error:#}");
        Ok(())
    }
}

scenario! {
    /// `make demo` shows what works, and has seen the end of its programs.
    #[on(infiniband)]
    fn the_demo_talks(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        for Row { what, result } in rows(&bed)? {
            result.context(what)?;
        }
        bed.finish()
    }
}

scenario! {
    /// Three hosts on one wire all reach each other.
    fn three_hosts_share_a_wire(bed) {
        let bed = bed.hosts(3).up()?;
        for a in &bed.hosts {
            for b in &bed.hosts {
                a.ok(&format!("ping -c 1 -W 5 {}", b.eth4()))?;
            }
        }
        bed.finish()
    }
}

scenario! {
    /// Delay and loss do what they say, and go away again.
    fn netem_works(bed) {
        let bed = bed.up()?;
        let (a, b) = bed.pair()?;
        let milliseconds = || -> Result<f32> {
            let text = a.ok(&format!("ping -c 3 -i 0.2 {}", b.eth4()))?;
            let average = text.rsplit('/').nth(2).context("no round-trip time")?;
            Ok(average.parse()?)
        };
        milliseconds()?;
        a.netem(Netem { delay_ms: 200, ..Netem::default() })?;
        ensure!(milliseconds()? >= 200.0, "no delay");
        a.netem(Netem { loss: 100.0, corrupt: 1.0, ..Netem::default() })?;
        a.run(&format!("ping -c 2 -W 1 {}", b.eth4()))?.refused()?;
        a.netem(Netem::default())?;
        let left = a.ok("tc qdisc show dev eth0")?;
        ensure!(!left.contains("loss") && !left.contains("corrupt"), "{left}");
        ensure!(milliseconds()? < 200.0, "the delay stays");
        bed.finish()
    }
}

scenario! {
    /// RDMA works between the hosts: a reliable connection over soft-RoCE.
    fn soft_roce_carries_data(bed) {
        let bed = bed.up()?;
        bed.rxe()?;
        rc_pingpong(&bed)?;
        bed.finish()
    }
}

/// `ibv_rc_pingpong` between a bed's two hosts.
fn rc_pingpong(bed: &Bed) -> Result<()> {
    let (a, b) = bed.pair()?;
    let server = b.spawn(&format!("ibv_rc_pingpong -d {} -g 1 -n 20", b.rxe()))?;
    a.wait_until(
        &format!("ibv_rc_pingpong -d {} -g 1 -n 20 {}", a.rxe(), b.eth4()),
        Duration::from_secs(10),
    )?;
    server.wait(b.scaled(Duration::from_secs(10)))?.ok()?;
    Ok(())
}
