// SPDX-License-Identifier: GPL-2.0

//! A load that delayed ACKs slow down: requests in two small writes each. The second write waits for
//! the acknowledgement of the first (Nagle), and that for the second (delayed ACK).

/// Where the requests go.
pub const PORT: u16 = 5002;

/// Sends requests to a host, its first argument, for as many seconds as the second says. Prints
/// answers per second.
pub const REQUESTS: &str = include_str!("../../../tests/guest/requests/requests.py");

/// Answers them, for ever.
pub const ANSWERS: &str = include_str!("../../../tests/guest/requests/answers.py");
