// SPDX-License-Identifier: GPL-2.0

//! Names of an interface's work items: whoever has one can queue it.

/// Work items of an interface.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Resolves paths, joins and leaves groups, removes idle ones.
    Paths,
    /// Brings the QP back after a failed send, replaces what is broken, repeats what the device has refused, and
    /// looks for buffers that are gone.
    Recover,
    /// Makes and ends connections.
    Connections,
    /// Checks that the device completes the datagrams that it was given.
    Watch,
}

impl Work {
    /// All of them, each at the place that is its number.
    pub(crate) const ALL: [Work; 4] = [Work::Paths, Work::Recover, Work::Connections, Work::Watch];
}
