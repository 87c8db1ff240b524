// SPDX-License-Identifier: GPL-2.0

//! The verbs.

use crate::text::words;

words! {
    /// A verb of the transport interface (chapter 11), or a kind of its calls, by the name of RDMA core's operation.
    pub enum Verb {
        /// Reads the capabilities of the adapter.
        QueryDevice = "query_device",
        /// Reads the attributes of a port.
        QueryPort = "query_port",
        /// Reads an entry of a P_Key table.
        QueryPKey = "query_pkey",
        /// Reads an entry of a GID table.
        QueryGid = "query_gid",
        /// Makes a protection domain.
        AllocPd = "alloc_pd",
        /// Ends a protection domain.
        DeallocPd = "dealloc_pd",
        /// Makes a memory region of all memory.
        GetDmaMr = "get_dma_mr",
        /// Makes a memory region that send requests open and close.
        AllocMr = "alloc_mr",
        /// Maps a list of buffers into a memory region.
        MapMr = "map_mr_sg",
        /// Ends a memory region.
        DeregMr = "dereg_mr",
        /// Makes an address handle.
        CreateAh = "create_ah",
        /// Ends an address handle.
        DestroyAh = "destroy_ah",
        /// Makes a completion queue.
        CreateCq = "create_cq",
        /// Ends a completion queue.
        DestroyCq = "destroy_cq",
        /// Takes completions.
        PollCq = "poll_cq",
        /// Asks for an event of a completion queue.
        NotifyCq = "req_notify_cq",
        /// Sets the moderation of a completion queue.
        ModifyCq = "modify_cq",
        /// Makes a shared receive queue.
        CreateSrq = "create_srq",
        /// Changes a shared receive queue.
        ModifySrq = "modify_srq",
        /// Ends a shared receive queue.
        DestroySrq = "destroy_srq",
        /// Posts to a shared receive queue.
        PostSrqRecv = "post_srq_recv",
        /// Makes a queue pair.
        CreateQp = "create_qp",
        /// Changes a queue pair, in whatever way.
        ModifyQp = "modify_qp",
        /// Takes a queue pair to the state Reset.
        ModifyQpReset = "modify_qp:reset",
        /// Takes a queue pair to the state Init.
        ModifyQpInit = "modify_qp:init",
        /// Takes a queue pair to the state Ready to Receive.
        ModifyQpRtr = "modify_qp:rtr",
        /// Takes a queue pair to the state Ready to Send.
        ModifyQpRts = "modify_qp:rts",
        /// Takes a queue pair to the state Send Queue Drained.
        ModifyQpSqd = "modify_qp:sqd",
        /// Takes a queue pair to the state Error.
        ModifyQpError = "modify_qp:error",
        /// Reads the attributes of a queue pair.
        QueryQp = "query_qp",
        /// Ends a queue pair.
        DestroyQp = "destroy_qp",
        /// Posts send requests.
        PostSend = "post_send",
        /// Posts receive requests.
        PostRecv = "post_recv",
        /// Attaches a queue pair to a multicast group.
        AttachMcast = "attach_mcast",
        /// Detaches a queue pair from a multicast group.
        DetachMcast = "detach_mcast",
    }
}

impl Verb {
    /// The number of verbs.
    pub(super) const COUNT: usize = Verb::ALL.len();

    /// Returns whether the verb works after a fatal error of the adapter, too: what ends an object, lest it leak, and
    /// what has requests flushed or takes them from a completion queue. RDMA core takes all of that for granted.
    pub const fn outlives_fatal(self) -> bool {
        matches!(
            self,
            Verb::DeallocPd
                | Verb::DeregMr
                | Verb::DestroyAh
                | Verb::DestroyCq
                | Verb::DestroySrq
                | Verb::DestroyQp
                | Verb::DetachMcast
                | Verb::ModifyQpReset
                | Verb::ModifyQpError
                | Verb::PostSend
                | Verb::PostRecv
                | Verb::PostSrqRecv
                | Verb::PollCq
                | Verb::NotifyCq
                | Verb::ModifyCq
        )
    }
}
