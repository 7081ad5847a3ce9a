"""Arrays for the GPU kernels that run on the processor, and the calls of these kernels."""

import ctypes

import numpy as np

from tests.support.compute_oracle import (
    as_bytes,
    core,
    numpy_dtype,
    random_bits,
    random_values,
)

GRIDS = ((1, 1), (3, 32), (7, 5), (2, 256))
POISON = 0xA5


class Call(ctypes.Structure):
    _fields_ = [
        ("dtype", ctypes.c_char_p),
        ("wire", ctypes.c_char_p),
        ("count", ctypes.c_int64),
        ("inputs", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("elements", ctypes.c_void_p),
        ("factor", ctypes.c_double),
        ("divisor", ctypes.c_int64),
        ("begin", ctypes.c_int64),
        ("end", ctypes.c_int64),
        ("packed", ctypes.c_void_p),
        ("packs", ctypes.c_int32),
        ("blocks", ctypes.c_int32),
        ("threads", ctypes.c_int32),
    ]


def guarded(length, name, offset, value=None):
    """An array that starts `offset` elements after a multiple of 16 bytes, and the bytes around it; poisoned."""
    size = numpy_dtype(name).itemsize
    room = np.full(length * size + 512, POISON, np.uint8)
    start = 64 - room.ctypes.data % 16 + offset * size
    array = room[start : start + length * size].view(numpy_dtype(name))
    if value is not None:
        array[...] = value
    return array, room


def untouched(array, room):
    start = array.ctypes.data - room.ctypes.data
    return (room[:start] == POISON).all() and (room[start + array.nbytes :] == POISON).all()


def addresses(arrays):
    return np.array([0 if array is None else array.ctypes.data for array in arrays], np.uintp)


def cpu_cast(to, source, name, scaling):
    into = np.zeros(len(source), numpy_dtype(to))
    plain = np.ascontiguousarray(source)
    core.compute_cast("auto", as_bytes(into), to, as_bytes(plain), name, len(into), *scaling)
    return into


def values(name, length, seed):
    """Half of them of every kind there is, half of them ordinary."""
    mixed = random_values(name, length, seed)
    mixed[::2] = random_bits(name, length, seed + 1)[::2]
    return mixed
