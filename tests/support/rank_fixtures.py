"""Fixtures of the files marked `ranks`: the session, the rank, an oracle; `tests/mpi_plugin.py` loads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from smddp_tf import basics
from tests.support.process_sets import Sets, layout

if TYPE_CHECKING:
    from mpi4py import MPI


@pytest.fixture(scope="session")
def hvd() -> Iterator[ModuleType]:
    """`smddp_tf`, initialised once for the whole session."""
    import smddp_tf

    smddp_tf.init()
    yield smddp_tf
    smddp_tf.shutdown()


@pytest.fixture(scope="session")
def rank(hvd: ModuleType) -> int:
    return hvd.rank()


@pytest.fixture(scope="session")
def size(hvd: ModuleType) -> int:
    return hvd.size()


@pytest.fixture(scope="session")
def mpi() -> Iterator[MPI.Comm]:
    """A communicator of all ranks that nothing else uses: the oracle for our own collectives."""
    from mpi4py import MPI

    communicator = MPI.COMM_WORLD.Dup()
    yield communicator
    communicator.Free()


@pytest.fixture
def several_ranks(size: int) -> None:
    """Leaves out a test whose subject is that ranks differ."""
    if size == 1:
        pytest.skip("one rank does not differ from others")


@pytest.fixture
def shared_folder(hvd: ModuleType, tmp_path: Path) -> Path:
    """Rank 0's `tmp_path`, on all ranks."""
    return Path(hvd.broadcast_object(str(tmp_path), name="shared_folder"))


@pytest.fixture
def restartable(hvd: ModuleType) -> Iterator[ModuleType]:
    """Allows a test to stop the session and to start other ones; the usual one runs again afterwards."""
    yield hvd
    hvd.shutdown()
    hvd.init()


@pytest.fixture(scope="module")
def dynamic(hvd: ModuleType) -> Iterator[ModuleType]:
    """A session in which process sets may be added."""
    hvd.shutdown()
    hvd.init(process_sets="dynamic")
    yield hvd
    hvd.shutdown()
    basics._dynamic = False  # it holds for later sessions too
    hvd.init()


@pytest.fixture(scope="module")
def sets(dynamic: ModuleType, size: int) -> Sets:
    """All the sets of `layout`, in use."""
    if size == 1:
        pytest.skip("one rank has no parts")
    return {name: dynamic.add_process_set(ranks) for name, ranks in layout(size).items()}


@pytest.fixture(params=["eager", "graph"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls a function with tensors: directly, or as a `tf.function`."""
    import tensorflow as tf

    return lambda function, *args: (function if request.param == "eager" else tf.function(function))(*args)


@pytest.fixture(params=["eager", "graph", "session"])
def run_in(request: pytest.FixtureRequest) -> Callable[[Callable[[], object]], object]:
    """Calls a function without arguments: directly, in a `tf.function`, or in a graph of TensorFlow 1."""
    import tensorflow as tf

    def in_session(function: Callable[[], object]) -> None:
        with tf.Graph().as_default():
            function()

    def in_graph(function: Callable[[], object]) -> object:
        return tf.function(lambda: [function(), 0][1:])()

    return {"eager": lambda function: function(), "graph": in_graph, "session": in_session}[request.param]


@pytest.fixture
def nothing_was_sent(hvd: ModuleType, size: int) -> Iterator[None]:
    """Fails a test after which the ranks are not at the same place."""
    import tensorflow as tf

    yield
    assert float(hvd.allreduce(tf.constant(1.0), op=hvd.Sum, name="afterwards")) == size


@pytest.fixture(params=["world", "node", 2])
def shard(hvd: ModuleType, size: int, request: pytest.FixtureRequest) -> Any:
    """The argument `shard` of an optimizer: each possible degree once."""
    from smddp_tf.keras.sharding.shards import possible_degrees

    degrees = {"world": size, "node": hvd.local_size(), 2: 2}
    degree = degrees[request.param]
    if degree == 1 or degree not in possible_degrees():
        pytest.skip("there are no parts of so many ranks here")
    if degree in [degrees[other] for other in list(degrees)[: list(degrees).index(request.param)]]:
        pytest.skip("the same ranks as another case")
    return request.param
