// SPDX-License-Identifier: GPL-2.0

//! A load that delayed ACKs slow down: requests in two small writes each. The second write waits for
//! the acknowledgement of the first (Nagle), and that for the second (delayed ACK).

/// Where the requests go.
pub const PORT: u16 = 5002;

/// Sends requests to a host, its first argument, for as many seconds as the second says. Prints
/// answers per second.
pub const REQUESTS: &str = r#"
import socket, sys, time
s = socket.create_connection((sys.argv[1], 5002))
start, n = time.monotonic(), 0
while time.monotonic() < start + float(sys.argv[2]):
    s.send(b"x" * 50)
    s.send(b"y" * 50)
    s.recv(1)
    n += 1
print(n / (time.monotonic() - start))
"#;

/// Answers them, for ever.
pub const ANSWERS: &str = r#"
import socket
s = socket.create_server(("", 5002))
while True:
    c, _ = s.accept()
    got = 0
    while data := c.recv(100):
        got += len(data)
        while got >= 100:
            got -= 100
            c.send(b"z")
"#;
