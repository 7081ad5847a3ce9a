"""Every algorithm between nodes under the whole engine: chunk sizes, dtypes and layouts, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests import native_module
from tests.support.layouts import LAYOUTS

pytestmark = pytest.mark.native

_core = native_module.core()

SUM = 1
ALGORITHMS = _core.algorithms()
SEVERAL_NODES = {name: hosts for name, hosts in LAYOUTS.items() if len(set(hosts)) > 1}
SEVERAL_NODES["1 x 8"] = [f"h{node}" for node in range(8)]
DTYPES = {
    name: np.dtype(getattr(ml_dtypes, name, None) or name)
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool")
}

over_algorithms = pytest.mark.parametrize("algorithm", [*ALGORITHMS, "auto"])
over_layouts = pytest.mark.parametrize("hosts", SEVERAL_NODES.values(), ids=SEVERAL_NODES.keys())


def allreduce(hosts: list[str], arrays: list[np.ndarray], dtype: str, chunk_bytes: int, algorithm: str) -> list:
    """Every rank's sum, through a plan."""
    outputs = [np.full_like(array, 77) for array in arrays]
    given, into = ([array.view(np.uint8) for array in side] for side in (arrays, outputs))
    _core.cluster_allreduce(hosts, given, into, dtype, SUM, 1.0, 1.0, chunk_bytes, True, "", algorithm)
    return outputs


def values(rank: int, length: int, dtype: str) -> np.ndarray:
    position = np.arange(length)
    if dtype == "bool":
        return (position + rank) % 3 == 0
    return ((5 * position + 3 * rank) % 13 + 1).astype(DTYPES[dtype])


@over_algorithms
@over_layouts
@pytest.mark.parametrize("dtype", DTYPES)
def test_sum(hosts: list[str], dtype: str, algorithm: str) -> None:
    itemsize = DTYPES[dtype].itemsize
    # Fewer elements than ranks; a part of a chunk; so many chunks that tags come round, and a rest.
    for chunk_bytes, length in ((4096, 1), (4096, 1000), (4096, 19 * 4096 // itemsize + 5), (65536, 100_003)):
        arrays = [values(rank, length, dtype) for rank in range(len(hosts))]
        stack = np.stack(arrays)
        expected = stack.any(axis=0) if dtype == "bool" else stack.astype(np.float64).sum(axis=0)
        for rank, output in enumerate(allreduce(hosts, arrays, dtype, chunk_bytes, algorithm)):
            got = output if dtype == "bool" else output.astype(np.float64)
            what = f"{length} elements in chunks of {chunk_bytes} bytes, rank {rank}"
            np.testing.assert_array_equal(got, expected, err_msg=what)


@over_algorithms
@pytest.mark.parametrize("layout", ["2+2+2+2", "1 x 8", "1+4+2"])
def test_same_bits_on_all_ranks_and_every_time(layout: str, algorithm: str) -> None:
    hosts = SEVERAL_NODES[layout]
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(50_021).astype(np.float32) for _ in hosts]
    outputs = [output.tobytes() for _ in range(3) for output in allreduce(hosts, arrays, "float32", 8192, algorithm)]
    assert set(outputs) == {outputs[0]}


def test_unknown_algorithm_names_those_that_exist() -> None:
    array = np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="SMDDP_RAIL_ALGORITHM") as error:
        allreduce(["a", "b"], [array, array], "float32", 4096, "mesh")
    assert all(name in str(error.value) for name in [*ALGORITHMS, "auto", "mesh"])
