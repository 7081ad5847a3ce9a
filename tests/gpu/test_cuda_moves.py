"""What the GPU kernels pack, unpack and copy: their code, compiled for the processor, against the CPU's own kernels.

Which thread touches what, and how, is one function for both (tf_ops/cuda/kernels/move.h); only the launch is the
GPU's alone.
"""

import ctypes

import numpy as np
import pytest

from tests.gpu.cuda_kernels import GRIDS, POISON, Call, addresses, cpu_cast, guarded, untouched, values
from tests.support.compute_oracle import (
    FLOATS,
    INTEGERS,
    MOVED,
    as_bytes,
    numpy_dtype,
    random_bits,
    random_values,
    same,
)

MAX_PIECES = 320  # of one launch
SIZES = (0, 1, 2, 3, 7, 8, 15, 16, 33, 64, 100, 1000, 4096, 5003, 9000)


def move(kernels, packs, pieces, packed, dtype, wire, begin, end, scaling, grid, sizes=None):
    """Packs the pieces into `packed` or the other way; returns the number of launches."""
    inputs = addresses(pieces)
    elements = np.array([len(piece) for piece in pieces] if sizes is None else sizes, np.int64)
    call = Call(
        *(dtype.encode(), wire.encode(), len(pieces), inputs.ctypes.data, inputs.ctypes.data, elements.ctypes.data),
        *(*scaling, begin, end, packed.ctypes.data, packs, *grid),
    )
    launches = kernels.kernels_move(ctypes.byref(call))
    assert launches >= 0, kernels.kernels_error().decode()
    return launches


def layout(rng, aligned):
    """Sizes and offsets of pieces, and a range of them."""
    count = int(rng.integers(1, 14))
    sizes = [int(size) for size in rng.choice(SIZES, count)]
    offsets = [0 if aligned else int(offset) for offset in rng.integers(0, 16, count)]
    if aligned:
        sizes = [size // 16 * 16 for size in sizes]
    total = sum(sizes)
    begin, end = (0, total) if aligned else sorted(int(at) for at in rng.integers(0, total + 1, 2))
    return sizes, offsets, begin, end


SCALINGS = ((1.0, 1), (0.375, 1), (1.0, 49), (3.7, 6), (1e6, 1), (1e-9, 3))
PAIRS = [(to, name) for to in FLOATS for name in FLOATS]


@np.errstate(invalid="ignore")
@pytest.mark.parametrize(("to", "name"), PAIRS)
def test_packing_is_what_the_cpu_does(kernels, to, name):
    for trial in range(8):
        rng = np.random.default_rng([trial, FLOATS.index(to), FLOATS.index(name)])
        sizes, offsets, begin, end = layout(rng, aligned=trial % 4 == 0)
        scaling, grid = SCALINGS[trial % len(SCALINGS)], GRIDS[trial % len(GRIDS)]
        pieces = [guarded(n, name, o, values(name, n, trial))[0] for n, o in zip(sizes, offsets)]
        packed, room = guarded(end - begin, to, 0 if trial % 4 == 0 else int(rng.integers(0, 16)))
        move(kernels, True, pieces, packed, name, to, begin, end, scaling, grid)
        expected = cpu_cast(to, np.concatenate(pieces)[begin:end], name, scaling)
        same(packed, expected)
        assert untouched(packed, room)


@np.errstate(invalid="ignore")
@pytest.mark.parametrize(("to", "name"), PAIRS)
def test_unpacking_is_what_the_cpu_does(kernels, to, name):
    for trial in range(8):
        rng = np.random.default_rng([trial, FLOATS.index(to), FLOATS.index(name), 1])
        sizes, offsets, begin, end = layout(rng, aligned=trial % 4 == 0)
        scaling, grid = SCALINGS[trial % len(SCALINGS)], GRIDS[trial % len(GRIDS)]
        rooms = [guarded(n, to, o) for n, o in zip(sizes, offsets)]
        wanted = [array if rng.random() < 0.8 else None for array, _ in rooms]  # nobody wants the others
        packed = guarded(end - begin, name, int(rng.integers(0, 16)), values(name, end - begin, trial))[0]
        move(kernels, False, wanted, packed, to, name, begin, end, scaling, grid, sizes=sizes)
        expected = cpu_cast(to, packed, name, scaling)
        start = 0
        for size, piece, (array, room) in zip(sizes, wanted, rooms):
            low, high = (min(max(at - start, 0), size) for at in (begin, end))
            if piece is None:
                assert (room == POISON).all()
            else:
                same(array[low:high], expected[start + low - begin : start + high - begin] if low < high else array[:0])
                assert untouched(array[low:high], room)
            start += size


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, *MOVED, "bool"])
def test_copies_keep_every_bit(kernels, name):
    for trial in range(4):
        rng = np.random.default_rng(trial)
        sizes, offsets, begin, end = layout(rng, aligned=trial == 0)
        pieces = [guarded(n, name, o, random_bits(name, n, n))[0] for n, o in zip(sizes, offsets)]
        packed, room = guarded(end - begin, name, trial)
        move(kernels, True, pieces, packed, name, name, begin, end, (1.0, 1), GRIDS[trial])
        same(packed, np.concatenate(pieces)[begin:end], nan_bits=True)
        assert untouched(packed, room)
        back = [guarded(n, name, o + 1) for n, o in zip(sizes, offsets)]
        move(kernels, False, [array for array, _ in back], packed, name, name, begin, end, (1.0, 1), GRIDS[-trial])
        whole = np.concatenate([array for array, _ in back])
        same(whole[begin:end], packed, nan_bits=True)
        outside = np.concatenate([as_bytes(whole[:begin]), as_bytes(whole[end:])])
        assert (outside == POISON).all()


@pytest.mark.parametrize(
    ("to", "name"),
    [
        ("float32", "float32"),
        ("bfloat16", "float32"),
        ("float32", "bfloat16"),
        ("float64", "float32"),
        ("uint8", "uint8"),
    ],
)
def test_all_goes_by_16_bytes_where_both_sides_allow_it(kernels, to, name):
    """Ends of pieces, and pieces that lie otherwise than their place, go element by element."""
    to_size, size = numpy_dtype(to).itemsize, numpy_dtype(name).itemsize
    vector = 16 // to_size  # elements
    counted = to_size + (size if vector * size >= 16 else 0)  # narrower elements are read 8 bytes at a time
    for offset, odd, alike in ((0, 0, True), (vector // 2, 0, True), (0, 1, False)):
        sizes = [512 + odd, 4096, 20000]
        pieces = [guarded(n, name, offset, random_values(name, n, n))[0] for n in sizes]
        packed, _ = guarded(sum(sizes), to, offset)
        before = kernels.kernels_quads()
        move(kernels, True, pieces, packed, name, to, 0, len(packed), (1.0, 1), (3, 32))
        quads = kernels.kernels_quads() - before
        moved = (len(packed) if alike else sizes[0] - odd) * counted // 16
        assert moved - 2 * counted * len(sizes) <= quads <= moved


@pytest.mark.parametrize("tail", [0, 20000])
def test_more_pieces_than_a_launch_takes(kernels, tail):
    rng = np.random.default_rng(3)
    sizes = [*(int(size) for size in rng.integers(0, 9, 3 * MAX_PIECES)), tail]
    pieces = [guarded(n, "float32", i % 5, random_values("float32", n, i))[0] for i, n in enumerate(sizes)]
    packed, room = guarded(sum(sizes), "bfloat16", 3)
    launches = move(kernels, True, pieces, packed, "float32", "bfloat16", 0, sum(sizes), (0.5, 1), (2, 32))
    assert launches == -(-np.count_nonzero(sizes) // MAX_PIECES)
    same(packed, cpu_cast("bfloat16", np.concatenate(pieces), "float32", (0.5, 1)))
    assert untouched(packed, room)


@pytest.mark.parametrize(("name", "units"), [("uint8", 1), ("complex128", 2)])
def test_more_elements_than_a_launch_takes(kernels, name, units):
    """Only the tables: nothing lies at these addresses."""
    most, size = 1 << 30, numpy_dtype(name).itemsize
    sizes = np.array([10, 3 * most // units, 7], np.int64)
    pieces = np.array([1 << 45, 1 << 46, 1 << 47], np.uintp)
    begin, end = 5, int(sizes.sum())
    call = Call(
        *(name.encode(), name.encode(), 3, pieces.ctypes.data, pieces.ctypes.data, sizes.ctypes.data),
        *(1.0, 1, begin, end, 1 << 44, 1, 1, 1),
    )
    into, first, elements = np.zeros(8, np.uintp), np.zeros(8, np.uintp), np.zeros(8, np.int64)
    tables = [array.ctypes.data_as(ctypes.c_void_p) for array in (into, first, elements)]
    launches = kernels.kernels_plan(ctypes.byref(call), *tables, 8)
    assert elements[:launches].tolist() == [most] * 3 + [(5 + 7) * units]
    at = begin
    for i in range(launches):
        assert into[i] == (1 << 44) + (at - begin) * size
        piece = np.searchsorted(np.cumsum(sizes), at, side="right")
        assert first[i] == int(pieces[piece]) + (at - int(sizes[:piece].sum())) * size
        at += int(elements[i]) // units
    assert at == end


@pytest.mark.parametrize(
    ("dtype", "wire", "scaling"),
    [("int32", "int32", (0.5, 1)), ("int64", "int64", (1.0, 2)), ("int32", "float32", (1.0, 1))],
)
def test_integers_are_copied_or_refused(kernels, dtype, wire, scaling):
    array = np.ones(4, dtype)
    with pytest.raises(AssertionError, match=f"dtype {dtype} are copied only"):
        move(kernels, True, [array], np.ones(4, wire), dtype, wire, 0, 4, scaling, (1, 1))
