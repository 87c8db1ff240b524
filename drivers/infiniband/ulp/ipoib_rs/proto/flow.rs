// SPDX-License-Identifier: GPL-2.0

//! Rates and limits: how much, how often, for how long, and who gives way.

pub mod admission;
pub mod backlog;
pub mod backoff;
pub mod credit;
pub mod pace;
pub mod path_mtus;
pub mod places;
pub mod rest;
pub mod sizes;
pub mod stall;
pub mod thresholds;
pub mod turn;
pub mod vectors;
