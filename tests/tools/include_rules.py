"""Which part of the engine may include which headers, as drawn in docs/architecture.md."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "tf_ops"

_CORE = ("core/*", "core/env/*", "core/process/*", "core/sync/*")
# The parts of the session, lowest first, and the parts each may include besides itself (tf_ops/runtime/CMakeLists.txt).
RUNTIME = {
    "api": (),
    "control": ("api",),
    "bootstrap": (),
    "timeline": ("api", "control"),
    "verify": ("api", "control"),
    "requests": ("api", "control", "verify"),
    "named": ("api", "control", "requests"),
    "gpu": ("api", "control", "named"),
    "plans": ("api", "control", "gpu", "named", "verify"),
    "join": ("api", "control", "named", "plans", "requests"),
    "health": ("api", "control", "named", "plans"),
    "engine": ("api", "bootstrap", "control", "health"),
    "session": (
        *("api", "bootstrap", "control", "engine", "gpu", "health", "join", "named", "plans"),
        *("requests", "timeline", "verify"),
    ),
}
# Which headers may be included, by the including file; the first pattern that matches it decides. `*` stops at `/`.
_BELOW_COLLECTIVES = (
    *(*_CORE, "topology/*", "transport/*", "compute/*", "device/*", "collectives/*"),
    *("collectives/patterns/*", "collectives/rail/algorithm.h", "collectives/rail/selector.h"),
)
RULES = {
    **dict.fromkeys(_CORE, _CORE),
    "topology/*": (*_CORE, "topology/*"),
    "transport/*": (*_CORE, "topology/*", "transport/*"),
    "transport/shm/*": (*_CORE, "topology/*", "transport/*", "transport/shm/*"),
    "transport/tcp/*": (*_CORE, "topology/*", "transport/*", "transport/tcp/*"),
    # A library of its own.
    "transport/mpi/*": (*_CORE, "topology/*", "transport/*", "transport/mpi/*"),
    "compute/*": (*_CORE, "compute/*"),
    "compute/cpu/*": (*_CORE, "compute/*", "compute/cpu/*"),
    "device/*": (*_CORE, "compute/*", "device/*"),
    # Implements what device/ asks for.
    "cuda/*": (*_CORE, "compute/*", "device/*", "cuda/*", "cuda/kernels/*", "cuda/nccl/*"),
    "cuda/nccl/*": (*_CORE, "device/*", "cuda/*", "cuda/nccl/*"),
    # The CPU's own code for one element.
    "cuda/kernels/elements.h": ("compute/cpu/elements.inc",),
    "cuda/kernels/*": (*_CORE, "compute/*", "cuda/kernels/*"),
    "collectives/device/*": (*_BELOW_COLLECTIVES, "collectives/device/*", "collectives/device/methods/*"),
    "collectives/device/methods/*": (*_BELOW_COLLECTIVES, "collectives/device/*", "collectives/device/methods/*"),
    # Index arithmetic only.
    "collectives/patterns/*": (*_CORE, "collectives/patterns/*"),
    # An algorithm over messages knows no other algorithm and no way of carrying messages.
    "collectives/p2p/*": (*_BELOW_COLLECTIVES, "collectives/p2p/*"),
    "collectives/rail/*": (*_BELOW_COLLECTIVES, "collectives/rail/*", "collectives/p2p/rounds_task.h"),
    # The node stages read and write the slots of shared memory in place.
    "collectives/node/*": (*_BELOW_COLLECTIVES, "collectives/node/*", "transport/shm/node_channel.h"),
    "collectives/fabric.h": (*_BELOW_COLLECTIVES, "transport/shm/node_channel.h"),
    "collectives/*": (*_BELOW_COLLECTIVES, "collectives/node/*"),
    "fusion/*": (*_CORE, "fusion/*"),
    # What a framework sees of the session.
    "runtime/api/*": (*_CORE, "topology/*", "fusion/*", "runtime/api/*", "transport/world.h"),
    **{
        f"runtime/{part}/*": (
            *_BELOW_COLLECTIVES,
            *("collectives/*/*", "transport/shm/*", "fusion/*", f"runtime/{part}/*"),
            *(("transport/tcp/*",) if part == "session" else ()),
            *(f"runtime/{below}/*" for below in parts),
        )
        for part, parts in RUNTIME.items()
        if part != "api"
    },
    "ops/*": (*_CORE, "topology/topology.h", "fusion/plan.h", "runtime/api/session.h", "ops/*"),
    "ops/allocator/*": ("ops/allocator/*",),
    "ops/kernels/*": (*_CORE, "topology/topology.h", "fusion/plan.h", "runtime/api/session.h", "ops/*"),
    # Of the other kernels XLA's knows what they share.
    "ops/xla/*": (
        *(*_CORE, "runtime/api/session.h", "ops/xla/*"),
        *("ops/compiled_call.h", "ops/gpu_kernels.h", "ops/tensor_adapter.h"),
    ),
    "python/*": (*_CORE, "runtime/api/session.h", "transport/mpi_library.h", "python/*"),
}


def files_of(*folders: str) -> list[Path]:
    found = [file for folder in folders for file in (NATIVE / folder).rglob("*")]
    return sorted(file for file in found if file.suffix in (".h", ".cc", ".inc", ".cu"))


def name_of(file: Path) -> str:
    return file.relative_to(NATIVE).as_posix()


def code_of(text: str) -> str:
    """The text without comments; line numbers stay. (A `//` inside a string is cut too, which hides nothing here.)"""
    text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)
