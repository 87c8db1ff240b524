// SPDX-License-Identifier: GPL-2.0

//! Completions of work requests (section 11.6.2).

use crate::text::words;

words! {
    /// Status of a completion, by its name in RDMA core.
    pub enum Status {
        /// The request is done.
        Success = "SUCCESS",
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
