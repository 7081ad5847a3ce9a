"""Which tensors travel together, and which part of them a rank reduces: pure functions, no ranks."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import native_module

pytestmark = pytest.mark.native

_core = native_module.core()

SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int32": 4, "int64": 8, "uint8": 1}
ALIGNMENT = 128  # kShardAlignment of core/shard.h

dtypes = st.sampled_from(sorted(SIZES))
shapes = st.lists(st.integers(0, 40), max_size=3)
tensor_lists = st.lists(st.tuples(dtypes, shapes), max_size=25)
wire_dtypes = st.sampled_from(["", "float16", "bfloat16", "float32"])
limits = st.sampled_from([0, 1, 100, 4096, 1 << 30])


def plan(tensors: list[tuple[str, list[int]]], wire_dtype: str, limit: int, order: Sequence[int] = ()) -> list[dict]:
    dtypes, shapes = [dtype for dtype, _ in tensors], [shape for _, shape in tensors]
    return _core.plan_buckets(dtypes, shapes, wire_dtype, limit, order)


def wire_bytes(bucket: dict) -> int:
    return bucket["elements"] * SIZES[bucket["wire_dtype"]]


@given(tensor_lists, wire_dtypes, limits)
def test_every_tensor_has_one_place_in_order(tensors: list, wire_dtype: str, limit: int) -> None:
    buckets = plan(tensors, wire_dtype, limit)
    slots = [tuple(slot) for bucket in buckets for slot in bucket["slots"]]
    assert sorted(tensor for tensor, _, _ in slots) == list(range(len(tensors)))
    assert all(elements == math.prod(tensors[tensor][1]) for tensor, _, elements in slots)
    for dtype in SIZES:
        of_dtype = [tensor for tensor, _, _ in slots if tensors[tensor][0] == dtype]
        assert of_dtype == sorted(of_dtype)
    firsts = [bucket["slots"][0][0] for bucket in buckets]
    assert firsts == sorted(firsts)


@given(tensor_lists, wire_dtypes, limits, st.randoms(use_true_random=False))
def test_another_order_is_another_list(tensors: list, wire_dtype: str, limit: int, rng: random.Random) -> None:
    order = list(range(len(tensors)))
    rng.shuffle(order)
    permuted = plan([tensors[i] for i in order], wire_dtype, limit)
    for bucket in permuted:
        bucket["slots"] = [(order[tensor], *rest) for tensor, *rest in bucket["slots"]]
    assert plan(tensors, wire_dtype, limit, order) == permuted


@pytest.mark.parametrize("order", [[0], [0, 0], [0, 2], [0, -1], [0, 1, 2]])
def test_an_order_holds_every_tensor_once(order: list[int]) -> None:
    with pytest.raises(ValueError, match="every tensor once"):
        plan([("float32", [1])] * 2, "", 0, order)


@given(tensor_lists, wire_dtypes, limits)
def test_a_bucket_has_no_gaps_and_one_dtype(tensors: list, wire_dtype: str, limit: int) -> None:
    for bucket in plan(tensors, wire_dtype, limit):
        end = 0
        for tensor, offset, elements in bucket["slots"]:
            assert offset == end
            assert tensors[tensor][0] == bucket["dtype"]
            end += elements
        assert end == bucket["elements"]
        assert bucket["slots"], "no bucket is empty"


@given(tensor_lists, wire_dtypes, limits)
def test_a_bucket_keeps_the_limit_unless_one_tensor_passes_it(tensors: list, wire_dtype: str, limit: int) -> None:
    for bucket in plan(tensors, wire_dtype, limit):
        with_elements = [slot for slot in bucket["slots"] if slot[2] > 0]
        assert wire_bytes(bucket) <= limit or len(with_elements) == 1


@given(tensor_lists, wire_dtypes, limits)
def test_a_bucket_is_closed_only_for_a_reason(tensors: list, wire_dtype: str, limit: int) -> None:
    buckets = plan(tensors, wire_dtype, limit)
    for dtype in SIZES:
        of_dtype = [bucket for bucket in buckets if bucket["dtype"] == dtype]
        for this, following in zip(of_dtype, of_dtype[1:]):
            assert wire_bytes(this) + following["slots"][0][2] * SIZES[following["wire_dtype"]] > limit


@given(tensor_lists, wire_dtypes)
def test_only_wider_floating_tensors_are_narrowed(tensors: list, wire_dtype: str) -> None:
    for bucket in plan(tensors, wire_dtype, 4096):
        floating = "float" in bucket["dtype"]
        narrows = floating and wire_dtype != "" and SIZES[wire_dtype] < SIZES[bucket["dtype"]]
        assert bucket["wire_dtype"] == (wire_dtype if narrows else bucket["dtype"])


def test_the_limit_counts_what_travels() -> None:
    tensors = [("float32", [100])] * 4
    assert len(plan(tensors, "", 800)) == 2
    assert len(plan(tensors, "bfloat16", 800)) == 1


def test_without_a_limit_every_tensor_travels_alone() -> None:
    assert len(plan([("float32", [3])] * 5, "", 0)) == 5


def test_unknown_dtype() -> None:
    with pytest.raises(ValueError, match=r"Expected a dtype of: .*float32.*Received: float33\."):
        plan([("float33", [1])], "", 0)


# --- shards ---


@given(st.integers(0, 5000), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 9))
def test_shards_cover_everything_once(elements: int, element_size: int, parts: int) -> None:
    shards = [_core.shard_of(elements, element_size, parts, index) for index in range(parts)]
    assert (shards[0][0], shards[-1][1]) == (0, elements)
    assert all(before[1] == after[0] for before, after in zip(shards, shards[1:]))
    assert all(begin <= end for begin, end in shards)


@given(st.integers(0, 5000), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 9))
def test_shards_are_equal_and_aligned(elements: int, element_size: int, parts: int) -> None:
    shards = [_core.shard_of(elements, element_size, parts, index) for index in range(parts)]
    full = shards[0][1] - shards[0][0]
    for begin, end in shards:
        assert begin * element_size % ALIGNMENT == 0 or begin == elements
        assert end - begin == full or end == elements, "only the end may cut a shard off"
    assert full * element_size < elements * element_size / parts + element_size + ALIGNMENT, "no larger than needed"


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 8])
def test_short_lengths(parts: int) -> None:
    for elements in (0, 1, parts - 1, parts, parts + 1):
        shards = [_core.shard_of(elements, 4, parts, index) for index in range(parts)]
        assert sum(end - begin for begin, end in shards) == elements
        assert shards[0] == (0, elements), "fewer elements than one aligned piece belong to the first part"
