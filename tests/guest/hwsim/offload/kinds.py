# SPDX-License-Identifier: GPL-2.0

# Frames of all kinds; each is the same whenever this runs. Follows craft.py.

stamps = struct.pack("!BBBBII", 1, 1, 8, 10, 1234, 5678)
for version in (4, 6):
    # More segments than one, a last one that is short or not, sequence numbers and identifications that wrap.
    send(version, 6, tcp(0xfffff000, ACK | PSH | FIN, stamps), data[:20000], 1400, id=0xfffe)
    send(version, 6, tcp(5, ACK | PSH), data[:4200], 1400, id=0x1234)
    send(version, 6, tcp(6, ACK), data[:60001], 1000, id=7)
    send(version, 6, tcp(7, ACK, b"\1" * 40), data[:1001], 100, id=8)
    # Not to be segmented.
    send(version, 6, tcp(8, ACK, stamps), data[:1000])
    for length in (0, 1, 1400, 1401):
        send(version, 17, udp(length), data[:length])
    # A checksum of 0 goes as 0xffff.
    for last in range(0x10000):
        payload = data[:10] + struct.pack("!H", last)
        if add(addresses[version] + struct.pack("!HH", 17, 20) + udp(12) + payload) == 0xffff:
            send(version, 17, udp(12), payload)
            break
    else:
        raise SystemExit("no such datagram")
# All options of IP and TCP at once: no headers are longer.
send(4, 6, tcp(9, ACK | PSH, b"\1" * 40), data[:3000], 500, b"\1" * 40, id=9)
end()
