# SPDX-License-Identifier: GPL-2.0

# Hands frames to ib0 one by one, a thousand with each system call, which takes longer than a frame. Arguments: the address,
# without colons, and how many thousands.

import ctypes, os, socket, struct, sys

class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("length", ctypes.c_size_t)]

class Header(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("name_length", ctypes.c_uint), ("vectors", ctypes.POINTER(Vector)),
                ("vector_count", ctypes.c_size_t), ("control", ctypes.c_void_p), ("control_length", ctypes.c_size_t),
                ("flags", ctypes.c_int)]

# struct mmsghdr.
class Message(ctypes.Structure):
    _fields_ = [("header", Header), ("sent", ctypes.c_uint)]

frame = bytes.fromhex(sys.argv[1]) + struct.pack("!HH", 0x0800, 0) + bytes(100)
vector = Vector(frame, len(frame))
messages = (Message * 1000)()
for message in messages:
    message.header.vectors, message.header.vector_count = ctypes.pointer(vector), 1
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
packets.bind(("ib0", 0x0800))
libc = ctypes.CDLL(None, use_errno=True)
for _ in range(int(sys.argv[2])):
    if libc.sendmmsg(packets.fileno(), messages, len(messages), 0) != len(messages):
        sys.exit(os.strerror(ctypes.get_errno()))
