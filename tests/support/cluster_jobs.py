"""Collectives over ranks that are threads of this process: what they bring, and NumPy's answers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests import native_module

_core = native_module.core()

AVERAGE, SUM, MIN, MAX, PRODUCT = 0, 1, 3, 4, 5
DTYPES = {
    name: np.dtype(getattr(ml_dtypes, name, None) or name)
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
}
CHUNK_BYTES = 4096


def brought(rank: int, length: int, dtype: str, op: int) -> np.ndarray:
    """Different on every rank and at every position, and small: every result below is exact in every dtype."""
    position = np.arange(length)
    if dtype == "bool":
        return (position + rank) % 3 == 0
    if op == PRODUCT:
        factors = np.array([1, 2, 1] if dtype.startswith("u") else [1, 2, -1])
        return factors[(position + rank) % 3].astype(DTYPES[dtype])
    return ((5 * position + 3 * rank) % 13 + 1).astype(DTYPES[dtype])


def reduced(inputs: list[np.ndarray], op: int) -> np.ndarray:
    """NumPy's answer, in a type that holds it."""
    stack = np.stack(inputs)
    if stack.dtype == bool:
        return stack.any(axis=0) if op in (SUM, MAX) else stack.all(axis=0)
    wide = stack.astype(np.int64 if stack.dtype.kind in "iu" else np.float64)
    if op == AVERAGE:
        total = wide.sum(axis=0)
        return total // len(inputs) if wide.dtype == np.int64 else total / len(inputs)
    return {SUM: np.sum, MIN: np.min, MAX: np.max, PRODUCT: np.prod}[op](wide, axis=0)


def allreduce(
    hosts: list[str],
    inputs: list[np.ndarray],
    dtype: str,
    op: int,
    planned: bool,
    prescale: float = 1.0,
    postscale: float = 1.0,
    in_place: bool = False,
    wire: str = "",
) -> list[np.ndarray]:
    sources = [array.copy() for array in inputs]
    outputs = sources if in_place else [np.full_like(array, 77) for array in inputs]
    as_bytes = [array.view(np.uint8) for array in sources]
    into = as_bytes if in_place else [array.view(np.uint8) for array in outputs]
    _core.cluster_allreduce(hosts, as_bytes, into, dtype, op, prescale, postscale, CHUNK_BYTES, planned, wire)
    return outputs


def check(outputs: list[np.ndarray], expected: np.ndarray, exact: bool, what: str) -> None:
    for rank, output in enumerate(outputs):
        where = f"{what}, rank {rank}"
        assert output.tobytes() == outputs[0].tobytes(), f"{where} differs from rank 0"
    got = outputs[0] if outputs[0].dtype == bool else outputs[0].astype(np.float64)
    if exact:
        np.testing.assert_array_equal(got, expected, err_msg=what)
    else:  # a mean is a multiplication by the rounded 1/n
        tolerance = 2 * float(ml_dtypes.finfo(outputs[0].dtype).eps)
        np.testing.assert_allclose(got, expected, rtol=tolerance, err_msg=what)
