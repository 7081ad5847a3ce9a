"""The native module: control of the engine, collectives on NumPy arrays, and hooks for tests.

Errors are ValueError for a bad argument and before `init`, EngineError for everything else.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

class EngineError(RuntimeError):
    """The ranks disagree, one of them has gone, or something ran out."""

# --- control ---

def init(
    ranks: Sequence[int],
    comm_address: int,
    dynamic_process_sets: bool = False,
    facts: Sequence[tuple[str, str]] = (),
) -> None: ...
def shutdown(at_exit: bool = False) -> None: ...
def survives_losses() -> bool: ...
def session_failure() -> tuple[str, str] | None: ...
def raise_exception(text: str) -> None: ...
def tell_launcher(raised: bool, text: str) -> None: ...
def others_heard() -> bool: ...
def tell_shown() -> None: ...
def raised_elsewhere() -> str: ...
def shown_elsewhere() -> bool: ...
def leave_mpi_unfinished() -> None: ...
def end_last() -> None: ...
def stall_stacks() -> bool: ...
def set_stack_dump(signal: int, file: int) -> None: ...
def is_initialized() -> bool: ...
def rank() -> int: ...
def size() -> int: ...
def local_rank() -> int: ...
def local_size() -> int: ...
def cross_rank() -> int: ...
def cross_size() -> int: ...
def is_homogeneous() -> bool: ...
def mpi_initialized() -> bool: ...
def mpi_threads_supported() -> bool: ...
def mpi_library_version() -> str: ...
def register_plan(
    key: str,
    dtypes: Sequence[str],
    shapes: Sequence[Sequence[int]],
    op: int,
    prescale: float,
    postscale: float,
    wire_dtype: str,
    notes: Sequence[str] = (),
    process_set: int = 0,
    names: Sequence[str] = (),
) -> int:
    """Returns the plan's number. `wire_dtype` "" sends every tensor as it is; `names` need not agree."""

def add_process_sets(sets: Sequence[tuple[Sequence[int], int]], at_start: bool) -> list[int]:
    """Each as its ranks and the address of an MPI_Comm, one of which is empty (0). Returns their numbers.

    0 for a communicator that this process is not in, where others are in several.
    """

def remove_process_set(process_set: int) -> bool: ...
def process_sets() -> dict[int, list[int]]:
    """The ranks of every set, by number; 0 is all ranks."""

def stats(process_set: int = 0) -> dict[str, int]: ...
def trace_start() -> None: ...
def trace_stop() -> list[dict[str, Any]]:
    """The engine's diary since `trace_start`: dicts of what, name, index, time_ns."""

def start_timeline(path: str, mark_cycles: bool) -> None:
    """ValueError when one is being written already, or the file cannot be."""

def stop_timeline() -> None:
    """On rank 0 waits for the other ranks' parts."""

def env_variables() -> list[dict[str, str]]:
    """Every environment variable that is read: dicts of name, alias, default, meaning."""

def unknown_variables(names: Sequence[str]) -> list[tuple[str, str]]:
    """Those that begin with SMDDP_ and that nobody reads, each with a name that may have been meant, or ""."""

def algorithms() -> list[dict[str, str]]:
    """The allreduce algorithms: dicts of name, summary, steps, traffic."""

def data_autotune() -> bool:
    """What SMDDP_DATA_AUTOTUNE says, read now; ValueError when it cannot be read."""

def keras_compat() -> bool:
    """What SMDDP_KERAS_COMPAT says, read now; ValueError when it cannot be read."""

def started_by_launcher() -> bool: ...
def launcher_rank() -> int: ...
def build_info() -> dict[str, Any]: ...
def suggest_nccl(path: str) -> None: ...

# --- collectives on C-contiguous arrays; they wait. The dtype's name is the engine's: bfloat16 travels as uint16. ---

def allreduce(
    arrays: Sequence[npt.NDArray[Any]],
    dtype: str,
    name: str,
    op: int,
    prescale: float = 1.0,
    postscale: float = 1.0,
    wire_dtype: str = "",
    process_set: int = 0,
) -> None:
    """In place. `wire_dtype` "float16" or "bfloat16" narrows wider floating arrays on their way, "" none."""

def reduce_planned(plan: int, index: int, array: npt.NDArray[Any], dtype: str, process_set: int = 0) -> None:
    """In place: a gradient of a plan (`register_plan`)."""

def broadcast(arrays: Sequence[npt.NDArray[Any]], dtype: str, root: int, name: str, process_set: int = 0) -> None:
    """In place. `root` is a number among all ranks."""

def allgather(
    array: npt.NDArray[Any], dtype: str, name: str, process_set: int = 0
) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """Returns everybody's bytes, one after another, and the first dimension of every rank."""

def alltoall(
    array: npt.NDArray[Any], dtype: str, splits: Sequence[int] | None, name: str, process_set: int = 0
) -> tuple[npt.NDArray[np.uint8], list[int]]:
    """Returns the bytes from every rank, one after another, and the rows that come from each."""

def barrier(name: str, process_set: int = 0) -> None: ...
def join(process_set: int = 0) -> int:
    """Waits until all ranks have joined; returns the last one, by its number among all ranks."""

# --- hooks for tests: pure functions and ranks as threads ---

def __getattr__(name: str) -> Any: ...

# --- the watch over the other ranks, for tests ---

class Heartbeat:
    def __init__(self, rank: int, hosts: Sequence[str], timeout_s: float) -> None: ...
    def tick(self, now_s: float) -> None: ...
    def heard(self, rank: int, now_s: float) -> None: ...
    def left(self, rank: int) -> None: ...
    def due(self, now_s: float) -> list[int]: ...
    def find_lost(self, now_s: float, signs: Sequence[tuple[float, bool]]) -> str | None: ...

# --- a GPU and its kernels, for tests and benchmarks/gpu; addresses are numbers ---

class GpuView:
    """Pieces of device memory as one array (FusedView)."""

    def __init__(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        elements: Sequence[int],
        dtype: str,
        wire: str,
        factor: float = 1.0,
        divisor: int = 1,
        after_factor: float = 1.0,
        after_divisor: int = 1,
    ) -> None: ...

class Gpu:
    """The interface of tf_ops/device/device.h. What it makes lives until it is freed, or with the process."""

    def __init__(self, index: int = 0) -> None: ...
    def info(self) -> dict[str, Any]: ...
    def allocate(self, bytes: int) -> int: ...
    def free(self, memory: int) -> None: ...
    def allocate_pinned(self, bytes: int) -> int: ...
    def free_pinned(self, memory: int) -> None: ...
    def stream(self) -> int: ...
    def copy(self, to: int, source: int, bytes: int, stream: int) -> None: ...
    def copy_each(self, to: Sequence[int], sources: Sequence[int], bytes: Sequence[int], stream: int) -> None: ...
    def zero(self, memory: int, bytes: int, stream: int) -> None: ...
    def pack(
        self, view: GpuView, into: int, stream: int, begin: int = 0, end: int = -1, non_finite: int = 0
    ) -> None: ...
    def unpack(self, view: GpuView, source: int, stream: int, begin: int = 0, end: int = -1) -> None: ...
    def sum(
        self, into: int, sources: Sequence[int], elements: int, dtype: str, stream: int, non_finite: int = 0
    ) -> None: ...
    def synchronize(self, stream: int, seconds: float = 60.0) -> None:
        """Waits, without the GIL, for what `stream` holds by now."""

class GpuGroup:
    """One member of a group of GPUs (tf_ops/device/group.h). `id` is gpu_group_id's, the same for all members."""

    def __init__(self, gpu: Gpu, id: bytes, size: int, member: int) -> None: ...
    def ready(self) -> bool: ...
    def health(self) -> None: ...
    def reduce_scatter(self, into: int, source: int, each: int, dtype: str, stream: int) -> None: ...
    def allgather(self, into: int, source: int, each: int, dtype: str, stream: int) -> None: ...
    def abort(self) -> None: ...

def gpu_group_id() -> bytes: ...
def gpu_group_version() -> int:
    """Of NCCL: 22703 is 2.27.3."""

def gpu_reduce_planned(
    plan: int, gradients: Sequence[int], elements: Sequence[int], dtype: str, stream: int, process_set: int = 0
) -> None:
    """Reduces a plan's gradients on the GPU in place; returns when `stream` waits for the results."""
