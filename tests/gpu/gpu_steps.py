"""Steps of ranks that are threads, whose tensors lie on fake GPUs, and the sums they must give."""

import numpy as np

from tests import native_module

core = native_module.core()
TWO_NODES = ["a", "a", "b", "b"]
UNEVEN = ["a", "a", "b"]
SIZES = (3000, 1, 0, 4097, 12345, 17, 8000)


def gradients(ranks, sizes=SIZES, dtype=np.float32, seed=0):
    random = np.random.default_rng(seed)
    return [[random.standard_normal(size).astype(dtype) for size in sizes] for _ in range(ranks)]


def steps(hosts, arrays, dtype="float32", on_host=None, device_of_rank=None, **options):
    """What the ranks were told; `arrays` are reduced in place."""
    none = [[False] * len(of_rank) for of_rank in arrays]
    return core.cluster_gpu_steps(
        hosts=hosts,
        arrays=[[array.view(np.uint8) for array in of_rank] for of_rank in arrays],
        on_host=none if on_host is None else on_host,
        device_of_rank=[0] * len(hosts) if device_of_rank is None else device_of_rank,
        dtype=dtype,
        **options,
    )


def sums(arrays, prescale=1.0, postscale=1.0):
    return [np.sum(np.stack(of_tensor).astype(np.float64) * prescale, axis=0) * postscale for of_tensor in zip(*arrays)]


def check(arrays, expected, tolerance=1e-5):
    for rank, of_rank in enumerate(arrays):
        for index, (array, sum_) in enumerate(zip(of_rank, expected)):
            np.testing.assert_allclose(
                array, sum_, rtol=tolerance, atol=tolerance, err_msg=f"rank {rank}, tensor {index}"
            )
