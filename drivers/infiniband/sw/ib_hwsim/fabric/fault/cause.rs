// SPDX-License-Identifier: GPL-2.0

//! Errors that verbs fail with, and that requests complete with.

use super::word::words;

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

words! {
    /// A status of a completion that is none of success (section 11.6.2), by its name in RDMA core.
    pub enum Failure {
        /// Local length error.
        LocalLength = "LOC_LEN_ERR",
        /// Local queue pair operation error.
        LocalOperation = "LOC_QP_OP_ERR",
        /// Local protection error.
        LocalProtection = "LOC_PROT_ERR",
        /// Work request flushed error.
        Flushed = "WR_FLUSH_ERR",
        /// Bad response error.
        BadResponse = "BAD_RESP_ERR",
        /// Local access error.
        LocalAccess = "LOC_ACCESS_ERR",
        /// Remote invalid request error.
        RemoteInvalidRequest = "REM_INV_REQ_ERR",
        /// Remote access error.
        RemoteAccess = "REM_ACCESS_ERR",
        /// Remote operation error.
        RemoteOperation = "REM_OP_ERR",
        /// Transport retry counter exceeded.
        RetryExceeded = "RETRY_EXC_ERR",
        /// RNR retry counter exceeded.
        RnrRetryExceeded = "RNR_RETRY_EXC_ERR",
        /// An error of the adapter.
        Fatal = "FATAL_ERR",
        /// An error that has no other name.
        General = "GENERAL_ERR",
    }
}
