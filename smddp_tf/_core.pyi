"""The native module: the session's life, plans, process sets, and requests on host memory.

Errors are ValueError for a bad argument and before `init`, EngineError for everything else.
"""

from collections.abc import Sequence
from typing import Any

class EngineError(RuntimeError):
    """The ranks disagree, one of them has gone, or something ran out."""

    reason: str  # as `smddp_tf.exceptions.reason_of` gives it

# --- control ---

def init(
    ranks: Sequence[int],
    comm_address: int,
    dynamic_process_sets: bool = False,
    versions: Sequence[tuple[str, str]] = (),
    tensor_memory: tuple[int, int, int] = ...,
    world: tuple[int, Sequence[str], bytes, int] = ...,
) -> None:
    """`world`: this rank, the addresses of all, the key of 16 bytes, and the engine's listening socket."""

def needs_mpi(has_communicator: bool, is_initialized: bool) -> bool: ...
def load_mpi(path: str) -> None:
    """Loads libsmddp_mpi.so; the MPI that it belongs to must be in the process."""

def start_timeout() -> float:
    """SMDDP_START_TIMEOUT, in seconds."""

def shutdown(at_exit: bool = False) -> None: ...
def session_failure() -> tuple[str, str] | None: ...
def raise_exception(text: str) -> None: ...
def tell_launcher(raised: bool, text: str) -> None: ...
def others_acknowledged() -> bool: ...
def tell_traceback_printed() -> None: ...
def raised_elsewhere() -> str: ...
def traceback_printed_elsewhere() -> bool: ...
def leave_mpi_unfinished() -> None: ...
def end_last() -> None: ...
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
    kind: str = "allreduce",
    parts: int = 1,
) -> int:
    """Returns the plan's number. `wire_dtype` "" sends every tensor as it is; `names` need not agree.

    `kind` "reduce_parts": each rank gets one of `parts` parts of every sum; "gather_parts": brings its part, and gets
    the whole. `shapes` are those of the whole tensors.
    """

def places_in_parts(process_set: int, parts: int) -> list[int]:
    """Which of `parts` parts each rank has; ValueError where the ranks cannot share so many."""

def add_process_sets(sets: Sequence[tuple[Sequence[int], int]], at_start: bool) -> list[int]:
    """Each as its ranks and the address of an MPI_Comm, one of which is empty (0). Returns their numbers.

    0 for a communicator that this process is not in, where others are in several.
    """

def remove_process_set(process_set: int) -> bool: ...
def process_sets() -> dict[int, list[int]]:
    """The ranks of every set, by number; 0 is all ranks."""

def stats(process_set: int = 0) -> dict[str, int]:
    """Counters since `init`. Of gradients of training steps, in this process set:

    `steps`: those reduced; `reducing_ns`: time during which gradients were under way; `exposed_ns`: of that, the time
    after the last gradient of the step had arrived: communication that no computation hides.
    """

def start_timeline(path: str, mark_cycles: bool) -> None:
    """ValueError when one is being written already, or the file cannot be."""

def stop_timeline() -> tuple[str, dict[int, str]]:
    """On rank 0 waits until the other ranks have closed their parts. Returns its file and the hosts of these ranks.

    ("", {}) where no timeline has ended, as on the other ranks.
    """

def monitor_folder() -> str:
    """What SMDDP_MONITOR says, read now; "" where nothing is to be recorded."""

def switch(variable: str) -> bool:
    """What an environment variable that is 1, true, 0 or false says, read now; ValueError when it cannot be read."""

def build_info() -> dict[str, Any]: ...
def suggest_nccl(path: str) -> None: ...

# --- Requests on host memory. ---

FIRST_OWN_SET: int

def add_own_process_set(ranks: Sequence[int], number: int) -> None:
    """Makes a set by its members alone, which lasts as long as the session.

    `number`: from `FIRST_OWN_SET` on, of no other set of a member in this session.
    """

class SubmittedRequest:
    """A request under way, which keeps the owners of its memory. What drops it waits for its end."""

    def wait(self, seconds: float) -> bool:
        """False where it has not ended within that time. Raises what it ended with, each time."""

def submit(
    kind: int,
    name: str,
    tensors: Sequence[tuple[str, Sequence[int], int, int, int]],
    owners: Any,
    op: tuple[int, str],
    root: int,
    splits: Sequence[int],
    process_set: int,
) -> SubmittedRequest:
    """`kind`: `_native.requests.Kind`. `op`: of a reduction, and the dtype in which it is sent, as for `register_plan`.

    `root` is a number among all ranks.

    A tensor: its dtype and shape, the addresses of input and output, and how many rows the output of an allgather or
    alltoall has.
    """
