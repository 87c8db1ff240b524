// SPDX-License-Identifier: GPL-2.0

//! Scenarios: the driver as its users meet it, on real kernels, in both lanes.
//!
//! `make test` runs each of them once; `make test T=ping` those with `ping` in their name.

mod accounts;
mod automatic;
mod bench;
mod capture;
mod children;
mod coexist;
mod connected;
mod debian;
mod drops;
mod exact;
mod faults;
mod gids;
mod harness;
mod hostile;
mod hwsim;
mod inspect;
mod interop;
mod ipoibctl;
mod iproute;
mod lifecycle;
mod link;
mod multicast;
mod order;
mod patches;
mod pcapng;
mod ping;
mod programs;
mod quiet;
mod random;
mod reboot;
mod removal;
mod ring;
mod roce;
mod samples;
mod siblings;
mod streams;
mod swap;
mod sysctl;
mod timers;
mod transfer;
mod tune;
mod wire;

fn main() -> std::process::ExitCode {
    lab::scenario::main()
}
