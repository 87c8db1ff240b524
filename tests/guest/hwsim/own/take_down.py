# SPDX-License-Identifier: GPL-2.0

# Lets the SM's side of the host take a port's link down, by PortPhysicalState Polling; the status of the answer.
# Arguments: HCA, the port's LID, or 0 for a directed route without hops, and a limit for an answer in seconds.

lid, limit = int(sys.argv[2]), float(sys.argv[3])

def port_info(method, data=b""):
    if lid:
        request = mad(1, method, 0x15, 1, struct.pack("!Q32x", 0) + data.ljust(64, b"\0"))
        return exchange(fd, envelope(smi, lid=lid, timeout=2000, retries=3) + request, limit)
    request = mad(0x81, method, 0x15, 1, directed(data, ()))
    return exchange(fd, envelope(smi, timeout=2000, retries=3) + request, limit)

status, answer = port_info(1)
data = bytearray(answer[64:128])
data[32] &= 0xf0                   # PortState: no change
data[33] = 2 << 4 | data[33] & 15  # PortPhysicalState: Polling
status, answer = port_info(2, bytes(data))
print(status, answer[4] << 8 & 0x7f00 | answer[5])
