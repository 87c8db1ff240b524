# SPDX-License-Identifier: GPL-2.0

# Changes the rings of an interface by ETHTOOL_GRINGPARAM and ETHTOOL_SRINGPARAM of SIOCETHTOOL. Afterwards it has to be up again by itself.
# Follows each.py.

control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
data = (ctypes.c_uint32 * 9)()
request = struct.pack("16sP16x", b"ib0", ctypes.addressof(data))

def prepare(error):
    while open("/sys/class/net/ib0/carrier").read() != "1\n":
        time.sleep(0.01)
    data[0] = 0x10
    fcntl.ioctl(control, 0x8946, request)
    data[:] = [0x11, 0, 0, 0, 0, 1536 - data[5], 0, 0, 512]

prepare(0)
each(lambda: fcntl.ioctl(control, 0x8946, request) and 0, prepare)
