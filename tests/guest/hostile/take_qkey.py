# SPDX-License-Identifier: GPL-2.0

# Gives a UD queue pair of an RDMA device, the first argument, a Q_Key, the second, and prints "taken", or the error with
# which the kernel refuses that. Uses libibverbs. May follow nobody.py.

import ctypes, errno, os, struct, sys

name, qkey = sys.argv[1].encode(), int(sys.argv[2])
verbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
verbs.ibv_get_device_name.restype = ctypes.c_char_p

def make(function, *arguments):
    """The address of what a function makes."""
    call = verbs[function]
    call.restype = ctypes.c_void_p
    made = call(*arguments)
    if not made:
        sys.exit(f"{function}: {os.strerror(ctypes.get_errno())}")
    return ctypes.c_void_p(made)

count = ctypes.c_int()
devices = ctypes.cast(make("ibv_get_device_list", ctypes.byref(count)), ctypes.POINTER(ctypes.c_void_p))
devices = [ctypes.c_void_p(devices[n]) for n in range(count.value)]
device = next(device for device in devices if verbs.ibv_get_device_name(device) == name)
context = make("ibv_open_device", device)
pd = make("ibv_alloc_pd", context)
cq = make("ibv_create_cq", context, 2, None, None, 0)

# struct ibv_qp_init_attr: one request each way, of one piece, on a queue pair of IBV_QPT_UD.
wanted = ctypes.create_string_buffer(struct.pack("=4Q5I2i4x", 0, cq.value, cq.value, 0, 1, 1, 1, 1, 0, 4, 0))
qp = make("ibv_create_qp", pd, wanted)

# struct ibv_qp_attr: the state IBV_QPS_INIT, the Q_Key, and the port; the mask names these, and the index of the P_Key.
attributes = ctypes.create_string_buffer(struct.pack("=I12xI109xB14x", 1, qkey, 1))
refused = verbs.ibv_modify_qp(qp, attributes, 1 << 0 | 1 << 4 | 1 << 5 | 1 << 6)
print(errno.errorcode[refused] if refused else "taken")
