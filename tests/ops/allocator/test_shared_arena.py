"""The memory of shared tensors (tf_ops/ops/allocator/shared_arena.h): blocks, what is given back, forks, limits."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import subprocess
import sys
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests import native_module

pytestmark = pytest.mark.native

_core = native_module.core()
MIB = 1 << 20
ALIGNMENT, APART = 64, 320


def filled(arena: Any, offset: int, size: int, value: int) -> None:
    ctypes.memset(arena.address + offset, value, size)


def contents(arena: Any, offset: int, size: int) -> bytes:
    return ctypes.string_at(arena.address + offset, size)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 300_000), st.integers(0, 7)), min_size=1, max_size=80))
def test_blocks_do_not_overlap_and_become_one_again(steps: list[tuple[int, int]]) -> None:
    """Each step allocates a block, and frees one of those before it where its second number is small."""
    arena = _core.arena_create(8 * MIB)
    alive: dict[int, tuple[int, int]] = {}
    for number, (size, choice) in enumerate(steps):
        if (offset := arena.allocate(size)) >= 0:
            assert offset % ALIGNMENT == 0
            assert offset + size <= arena.capacity
            assert all(offset + size <= other or other + length <= offset for other, (length, _) in alive.items())
            alive[offset] = (size, number % 251)
            filled(arena, offset, size, number % 251)
        if choice < 4 and alive:
            freed = sorted(alive)[choice % len(alive)]
            size, value = alive.pop(freed)
            assert contents(arena, freed, size) == bytes([value]) * size
            arena.free(freed)
    for offset, (size, value) in alive.items():
        assert contents(arena, offset, size) == bytes([value]) * size
        arena.free(offset)
    assert arena.allocate(arena.capacity - APART) == 0, "the free ranges did not become one"


def test_the_smallest_range_that_fits_is_taken() -> None:
    arena = _core.arena_create(16 * MIB)
    blocks = [arena.allocate(size) for size in (MIB, 64, 2 * MIB, 64)]
    arena.free(blocks[0])
    arena.free(blocks[2])
    assert arena.allocate(MIB - 1000) == blocks[0]
    assert arena.allocate(MIB + 1000) == blocks[2]


def test_a_full_arena_says_so_and_goes_on() -> None:
    arena = _core.arena_create(4 * MIB)
    assert arena.allocate(5 * MIB) == -1
    assert arena.allocate(2**63) == -1
    first, second = arena.allocate(3 * MIB), arena.allocate(2 * MIB)
    assert (first, second) == (0, -1)
    arena.free(first)
    assert arena.allocate(2 * MIB) == 0


def test_equal_blocks_begin_at_different_places_of_a_page() -> None:
    arena = _core.arena_create(64 * MIB)
    assert len({arena.allocate(MIB) % mmap.PAGESIZE for _ in range(8)}) == 8


def test_memory_goes_back_once_it_is_not_needed_any_more() -> None:
    """Steps that use 40 MiB keep it; two periods after a moment with 200 MiB, what only that needed is gone."""
    _core.arena_clock(0)
    arena = _core.arena_create(512 * MIB)

    def use(mib: int) -> None:
        blocks = [arena.allocate(20 * MIB) for _ in range(mib // 20)]
        for block in blocks:
            filled(arena, block, 20 * MIB, 1)
        for block in blocks:
            arena.free(block)

    use(200)
    assert arena.resident_bytes >= 200 * MIB
    for second in range(1, 30):
        _core.arena_clock(second)
        use(40)
        assert arena.resident_bytes >= 40 * MIB
        if second < 5:
            assert arena.resident_bytes >= 200 * MIB, f"given back after {second} s"
    assert arena.resident_bytes <= 40 * MIB + 17 * MIB
    block = arena.allocate(100 * MIB)
    filled(arena, block, 100 * MIB, 3)
    assert contents(arena, block, 100 * MIB) == b"\3" * (100 * MIB)


def test_what_goes_back_does_not_touch_blocks_beside_it() -> None:
    _core.arena_clock(0)
    arena = _core.arena_create(512 * MIB)
    blocks = [arena.allocate(24 * MIB + 100) for _ in range(8)]
    for value, block in enumerate(blocks):
        filled(arena, block, 24 * MIB + 100, value + 1)
    for block in blocks[::2]:
        arena.free(block)
    for second in (6, 12, 18):
        _core.arena_clock(second)
        arena.free(arena.allocate(64))
    assert arena.resident_bytes < 5 * 25 * MIB
    for value, block in enumerate(blocks):
        if value % 2:
            assert contents(arena, block, 24 * MIB + 100) == bytes([value + 1]) * (24 * MIB + 100)


def test_the_file_can_be_mapped_read_and_not_be_shrunk() -> None:
    arena = _core.arena_create(MIB)
    filled(arena, arena.allocate(1000), 1000, 9)
    file = os.open(f"/proc/{os.getpid()}/fd/{arena.file}", os.O_RDWR | os.O_CLOEXEC)
    try:
        with mmap.mmap(file, MIB, access=mmap.ACCESS_READ) as mapped:
            assert mapped[:1000] == b"\t" * 1000
        with pytest.raises(PermissionError):
            os.ftruncate(file, 4096)
    finally:
        os.close(file)


def test_a_fork_gets_copies_and_no_blocks() -> None:
    """What the child writes does not reach the parent, what it frees stays used; it gets no memory of the arena."""
    arena = _core.arena_create(4 * MIB)
    block = arena.allocate(MIB)
    filled(arena, block, MIB, 5)
    child = os.fork()
    if child == 0:
        as_before = contents(arena, block, MIB) == b"\5" * MIB
        filled(arena, block, MIB, 6)
        arena.free(block)
        os._exit(0 if as_before and arena.allocate(1000) == -1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert contents(arena, block, MIB) == b"\5" * MIB
    assert arena.allocate(MIB) != block


@pytest.mark.parametrize(
    ("limit", "expected"),
    [(resource.RLIMIT_FSIZE, "1048576"), (resource.RLIMIT_AS, "None")],
    ids=["file size", "address space"],
)
def test_limits_of_the_process(limit: int, expected: str) -> None:
    """ulimit -f makes it smaller, ulimit -v leaves no place for it: an answer, and no signal."""
    script = (
        "import resource; from tests import native_module; core = native_module.core()\n"
        "import os; used = int(open('/proc/self/statm').read().split()[0]) * os.sysconf('SC_PAGE_SIZE')\n"
        f"value = {{{resource.RLIMIT_FSIZE}: 1 << 20, {resource.RLIMIT_AS}: used + (64 << 20)}}[{limit}]\n"
        f"resource.setrlimit({limit}, (value, resource.RLIM_INFINITY))\n"
        "arena = core.arena_create(1 << 30)\n"
        "print(None if arena is None else arena.capacity)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
