// SPDX-License-Identifier: GPL-2.0

//! Errors that verbs fail with.

use crate::text::words;

words! {
    /// An error of a verb, by its name in the kernel.
    pub enum Errno {
        /// Try again.
        Again = "EAGAIN",
        /// Busy.
        Busy = "EBUSY",
        /// A bad address.
        Fault = "EFAULT",
        /// An invalid argument.
        Invalid = "EINVAL",
        /// An input or output error.
        Io = "EIO",
        /// No such device.
        NoDevice = "ENODEV",
        /// Out of memory.
        NoMemory = "ENOMEM",
        /// No space left.
        NoSpace = "ENOSPC",
        /// Not implemented.
        NoSystem = "ENOSYS",
        /// Not supported.
        NotSupported = "EOPNOTSUPP",
        /// Not permitted.
        NotPermitted = "EPERM",
        /// Timed out.
        TimedOut = "ETIMEDOUT",
    }
}
