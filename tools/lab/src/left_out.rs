// SPDX-License-Identifier: GPL-2.0

//! Scenarios that do not run on a kernel, and why.

use crate::machine::Kernel;

/// How the names of scenarios begin that are left out on a kernel, each with the reason.
#[must_use]
pub const fn on(kernel: Kernel) -> &'static [(&'static str, &'static str)] {
    match kernel {
        Kernel::Base => &[FAULTS, DEBIAN, TRACING],
        Kernel::Debug => &[C_DRIVER, FAT_TREE, DEBIAN, TRACING],
        Kernel::Kcsan => &[FAULTS, C_DRIVER, FAT_TREE, DEBIAN, TRACING],
        Kernel::Stock => &[
            FAULTS,
            (
                "interop::",
                "the patched copy of the C driver is built for the lab's own kernels only",
            ),
            (
                "hostile::datagrams_without_headers_do_no_harm",
                "without patches/linux-7.3, a datagram of less than 12 bytes over IPv6 stops soft-RoCE's host",
            ),
            (
                "sysctl::delayed_acks_are_tuned",
                "only patches/linux-7.3 adds the sysctls of the delayed ACK",
            ),
            (
                "sysctl::the_sample_is_accepted",
                "the sample sets the sysctls of the delayed ACK, too",
            ),
        ],
    }
}

const FAULTS: (&str, &str) = (
    "faults::",
    "only the debug kernels can make allocations fail",
);
const C_DRIVER: (&str, &str) = (
    "interop::",
    "kernels with checkers are for this driver, not the C one",
);
const FAT_TREE: (&str, &str) = (
    "hwsim::topologies::a_large_fat_tree_in_a_minute",
    "it is a measurement, which checkers make a long one",
);
const TRACING: (&str, &str) = (
    "hwsim::observe::tracepoints_show_a_ping",
    "only Debian's kernel has tracepoints",
);
const DEBIAN: (&str, &str) = (
    "debian::",
    "Debian guests bring their own kernel: they run with the stock one",
);
