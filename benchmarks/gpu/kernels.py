"""Pack and unpack on the GPU against the CPU's kernels, bit for bit: `python -m benchmarks.gpu.kernels`."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.gpu import oracle
from benchmarks.gpu.answers import Answer, worker
from benchmarks.gpu.lists import ITEM_BYTES, GradientList, addresses, model_list, placed, random_list, small_list
from benchmarks.gpu.memory import POISON, Machine
from tests.native_module import core

__all__ = ["check_all"]

FLOATS = oracle.FLOATS
INTEGERS = ("uint8", "int32", "int64")  # not cast, not scaled
MODELS = ("ResNet-50", "BERT-base")
# Those of training first: what does not fit into the time is left out from the end.
MODEL_PAIRS = (
    ("float32", "float32"),
    ("float32", "bfloat16"),
    ("float32", "float16"),
    ("bfloat16", "bfloat16"),
    ("float16", "float16"),
    ("float16", "float32"),
    ("float64", "float32"),
)
SCALINGS = ((1.0, 1), (1.0 / 3.0, 1), (0.5, 8))
RANDOM_PARTS = 3  # of a list that is not of a model, packed apart from the whole of it


class KernelCheck:
    """Counts cases and elements that differ."""

    def __init__(self, machine: Machine, answer: Answer, until: float) -> None:
        self.machine, self.answer, self.until = machine, answer, until
        answer.update(cases=0, elements=0, wrong=0, failures=[], left_out=[])

    def run(self, label: str, check: Iterator[tuple[str, int, int]]) -> None:
        """`check` yields what was compared, how many elements, and how many of them differ."""
        if time.monotonic() > self.until:
            self.answer["left_out"].append(label)
            return
        for what, elements, wrong in check:
            self.answer["cases"] += 1
            self.answer["elements"] += elements
            self.answer["wrong"] += wrong
            if wrong and len(self.answer["failures"]) < 50:
                self.answer["failures"].append(f"{label}, {what}: {wrong} of {elements}")

    def pack_and_unpack(
        self, gradients: GradientList, dtype: str, wire: str, scaling: tuple[float, int], seed: int
    ) -> Iterator[tuple[str, int, int]]:
        """One list, one pair of dtypes: the whole of it and, where it is not of a model, some parts."""
        ordinary, elements = gradients.aligned, gradients.total
        layout = placed(gradients, ITEM_BYTES[dtype], seed)
        values = oracle.random_bytes(dtype, elements, seed, ordinary)
        packed = oracle.cast(values, dtype, wire, elements, *scaling)
        back = oracle.cast(packed, wire, dtype, elements, *scaling)
        filled = spread(values, gradients, layout.starts, layout.bytes, ITEM_BYTES[dtype])
        emptied = spread(back, gradients, layout.starts, layout.bytes, ITEM_BYTES[dtype])
        machine, size = self.machine, ITEM_BYTES[wire]
        with machine.from_array(filled) as inputs, machine.block(layout.bytes) as outputs:
            view = core().GpuView(
                addresses(layout, inputs.address),
                addresses(layout, outputs.address),
                gradients.elements,
                dtype,
                wire,
                *scaling,
                *scaling,
            )
            with machine.block(packed.nbytes + 64) as into:
                for begin, end in ranges(elements, seed, 0 if ordinary else RANDOM_PARTS):
                    into.poison()
                    machine.gpu.pack(view, into.address, machine.stream, begin, end)
                    got, part = into.download(), packed[begin * size : end * size]
                    where = f"pack {begin}:{end}"
                    yield where, end - begin, oracle.differing(got[: part.size], part, wire)
                    yield f"{where}, bytes behind it", 64, int(np.count_nonzero(got[part.size :] != POISON))
            with machine.from_array(packed) as source:
                outputs.poison()
                machine.gpu.unpack(view, source.address, machine.stream)
                yield "unpack", elements, differing_spread(outputs.download(), emptied, dtype)


def ranges(elements: int, seed: int, parts: int) -> list[tuple[int, int]]:
    """The whole, and some parts of it."""
    cuts = np.random.default_rng(seed).integers(0, elements + 1, (parts, 2))
    return [(0, elements), *((int(min(cut)), int(max(cut))) for cut in cuts)]


def spread(packed: np.ndarray, gradients: GradientList, starts: tuple[int, ...], size: int, item: int) -> np.ndarray:
    """The packed bytes where the tensors of the list lie; poison between them."""
    memory = np.full(size, POISON, np.uint8)
    at = 0
    for start, elements in zip(starts, gradients.elements):
        memory[start : start + elements * item] = packed[at : at + elements * item]
        at += elements * item
    return memory


def differing_spread(got: np.ndarray, expected: np.ndarray, dtype: str) -> int:
    """Elements that differ, and bytes between the tensors that were written; compared as elements from the start on."""
    whole = got.size // ITEM_BYTES[dtype] * ITEM_BYTES[dtype]
    tail = int(np.count_nonzero(got[whole:] != expected[whole:]))
    return oracle.differing(got[:whole], expected[:whole], dtype) + tail


def check_all(machine: Machine, answer: Answer, until: float, small: bool) -> None:
    """Random lists with every pair of dtypes first, then the models."""
    check = KernelCheck(machine, answer, until)
    lists = [random_list(seed, 40 if small else 300, 2_000 if small else 60_000) for seed in range(1 if small else 3)]
    for seed, gradients in enumerate(lists):
        for (dtype, wire), scaling in itertools.product(itertools.product(FLOATS, FLOATS), SCALINGS):
            check.run(
                f"{gradients.name} {dtype} as {wire} x {scaling[0]:.3g} / {scaling[1]}",
                check.pack_and_unpack(gradients, dtype, wire, scaling, seed),
            )
        for dtype in INTEGERS:
            check.run(f"{gradients.name} {dtype}", check.pack_and_unpack(gradients, dtype, dtype, (1.0, 1), seed))
    of = (lambda model: small_list(model, 5000)) if small else model_list
    for model, (dtype, wire) in itertools.product(MODELS, MODEL_PAIRS):
        check.run(f"{model} {dtype} as {wire}", check.pack_and_unpack(of(model), dtype, wire, (0.5, 3), 1))


def main() -> None:
    with worker(__doc__, "small") as (options, answer):
        machine = Machine()
        answer["device"] = machine.info
        check_all(machine, answer, time.monotonic() + options.seconds, options.small)


if __name__ == "__main__":
    main()
