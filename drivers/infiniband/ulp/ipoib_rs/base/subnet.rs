// SPDX-License-Identifier: GPL-2.0

//! Questions of an interface to the administrator (SA) of its InfiniBand subnet, and its link as the SA has told
//! it. On RoCE, the host's IP stack is asked for neighbours, and nothing else.

use ipoib_proto::hwaddr::HwAddr;
use ipoib_proto::mgid::Mgid;
use ipoib_proto::subnet::Link;
use ipoib_proto::ticket::Ticket;
use ipoib_rdma::{GroupRecord, Join, JoinState, NeighbourQuery, PathQuery, PathRecord};
use kernel::prelude::*;

/// The most questions that an interface has under way: one for each host on a large fabric at a time would keep its
/// SA busy.
pub(crate) const MAX_QUESTIONS: usize = 32;

/// A question for the way to a peer.
pub(crate) enum Question {
    /// To the SA.
    Path(PathQuery),
    /// To the IP stack.
    Neighbour(NeighbourQuery),
}

/// The answer to a [`Question`].
pub(crate) enum Way {
    /// As the SA tells it.
    Path(PathRecord),
    /// The IP stack knows the neighbour now.
    Neighbour,
}

impl Question {
    fn answer(&self) -> Option<Result<Way>> {
        Some(match self {
            Question::Path(query) => query.answer()?.map(Way::Path),
            Question::Neighbour(query) => query.answer()?.map(|()| Way::Neighbour),
        })
    }
}

/// A path that was asked for.
struct Asked {
    address: HwAddr,
    ticket: Ticket,
    question: Question,
}

/// A group that is being joined.
pub(crate) struct Joining {
    pub(crate) mgid: Mgid,
    /// The QP is to be attached to it.
    pub(crate) receives: bool,
    pub(crate) ticket: Ticket,
    pub(crate) join: Join,
}

/// Questions, and the link.
pub(crate) struct Subnet {
    paths: KVec<Asked>,
    groups: KVec<Joining>,
    link: Option<(GroupRecord, Link)>,
}

impl Subnet {
    /// Creates a state without questions or answers.
    pub(crate) const fn new() -> Self {
        Self {
            paths: KVec::new(),
            groups: KVec::new(),
            link: None,
        }
    }

    /// How many more questions may be asked.
    pub(crate) fn room(&self) -> usize {
        MAX_QUESTIONS.saturating_sub(self.paths.len() + self.groups.len())
    }

    /// Forgets all questions; nobody is told of answers afterwards.
    ///
    /// # Context
    ///
    /// Process context; sleeps until each is cancelled.
    pub(crate) fn cancel_all(&mut self) {
        self.paths.clear();
        self.groups.clear();
    }

    /// Keeps a question for a path.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; it is cancelled then.
    pub(crate) fn asked(&mut self, address: HwAddr, ticket: Ticket, question: Question) -> Result {
        let asked = Asked {
            address,
            ticket,
            question,
        };
        Ok(self.paths.push(asked, GFP_KERNEL)?)
    }

    /// Keeps a request to join a group.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; it is cancelled then.
    pub(crate) fn joining(&mut self, joining: Joining) -> Result {
        Ok(self.groups.push(joining, GFP_KERNEL)?)
    }

    /// Takes a question for a path that is answered.
    pub(crate) fn next_path(&mut self) -> Option<(HwAddr, Ticket, Result<Way>)> {
        let answers = self.paths.iter().map(|asked| asked.question.answer());
        let (at, answer) = answers
            .enumerate()
            .find_map(|(at, answer)| Some((at, answer?)))?;
        let Asked {
            address, ticket, ..
        } = self.paths.remove(at).ok()?;
        Some((address, ticket, answer))
    }

    /// Takes a request to join that is answered.
    pub(crate) fn next_group(&mut self) -> Option<(Joining, Result<GroupRecord>)> {
        let answers = self
            .groups
            .iter()
            .map(|joining| match joining.join.state() {
                JoinState::Joining => None,
                JoinState::Member(record) => Some(Ok(record)),
                JoinState::Failed(error) => Some(Err(error)),
                JoinState::Reset => Some(Err(ENETRESET)),
            });
        let (at, answer) = answers
            .enumerate()
            .find_map(|(at, answer)| Some((at, answer?)))?;
        Some((self.groups.remove(at).ok()?, answer))
    }

    /// The broadcast group, once it was joined, and what it says of the link.
    pub(crate) fn link(&self) -> Option<&(GroupRecord, Link)> {
        self.link.as_ref()
    }

    /// The broadcast group was joined.
    pub(crate) fn set_link(&mut self, record: GroupRecord, link: Link) {
        self.link = Some((record, link));
    }
}
