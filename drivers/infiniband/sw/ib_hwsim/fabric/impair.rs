// SPDX-License-Identifier: GPL-2.0

//! Fabrics that misbehave, from a seed: cables that lose, repeat, garble, delay and queue packets,
//! and switches that spread datagrams over parallel cables.
//!
//! A [`Pipe`] is one direction of a cable: it says of each packet whether and when it arrives.
//! Times are nanoseconds since any moment in the past, the same one for all calls. The driver keeps
//! the packets until then; [`heap`] puts them in order. A [`Balancer`] chooses a cable for a
//! datagram.
//!
//! The fates of the packets of one direction come from the seed of the fabric, the name of the
//! cable, the direction, and their place among the packets of their kind, and from nothing else:
//! neither other cables nor the time have a say. Packets of subnet management are a kind of their
//! own.

mod balance;
mod dice;
pub mod heap;
mod pipe;
mod settings;
mod singles;

pub use balance::{Adaptive, Balancer, Routing, RoutingSetting};
pub use dice::Dice;
pub use pipe::{Arrival, Fate, Passage, Pipe};
pub use settings::{Impairment, Impairments};
pub use singles::Singles;
