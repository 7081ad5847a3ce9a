"""The direction of dependence, as drawn in docs/architecture.md, holds in the sources.

The build enforces most of it by include paths (cmake/SmddpFolder.cmake); the finer rules are only here.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "tf_ops"
ENGINE = ("core", "topology", "transport", "compute", "device", "collectives", "fusion", "runtime")

_CORE = ("core/*", "core/env/*", "core/process/*", "core/sync/*")
# The parts of the session, lowest first, and the parts each may include besides itself (tf_ops/runtime/CMakeLists.txt).
_RUNTIME = {
    "api": (),
    "control": ("api",),
    "bootstrap": (),
    "timeline": ("api", "control"),
    "verify": ("api", "control"),
    "named": ("api", "control", "verify"),
    "gpu": ("api", "control", "named"),
    "plans": ("api", "control"),
    "planned": ("api", "control", "gpu", "named", "plans", "verify"),
    "join": ("api", "control", "named", "planned", "plans"),
    "health": ("api", "bootstrap", "control", "named", "planned", "plans"),
    "engine": ("api", "bootstrap", "control", "health"),
    "session": (
        *("api", "bootstrap", "control", "engine", "gpu", "health", "join", "named", "planned", "plans"),
        *("timeline", "verify"),
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
    # The only file that names algorithms.
    "collectives/rail/registry.cc": (*_BELOW_COLLECTIVES, "collectives/rail/*"),
    "collectives/rail/*": (*_BELOW_COLLECTIVES, "collectives/rail/*", "collectives/p2p/rounds_task.h"),
    # The node stages read and write the slots of shared memory in place.
    "collectives/node/*": (*_BELOW_COLLECTIVES, "collectives/node/*", "transport/shm/node_channel.h"),
    "collectives/fabric.h": (*_BELOW_COLLECTIVES, "transport/shm/node_channel.h"),
    "collectives/*": (*_BELOW_COLLECTIVES, "collectives/node/*"),
    "fusion/*": (*_CORE, "fusion/*"),
    # What a framework sees of the session.
    "runtime/api/*": (*_CORE, "topology/*", "fusion/*", "runtime/api/*"),
    **{
        f"runtime/{part}/*": (
            *_BELOW_COLLECTIVES,
            *("collectives/*/*", "transport/*/*", "fusion/*", f"runtime/{part}/*"),
            *(f"runtime/{below}/*" for below in parts),
        )
        for part, parts in _RUNTIME.items()
        if part != "api"
    },
    "ops/*": (*_CORE, "topology/topology.h", "fusion/plan.h", "runtime/api/session.h", "ops/*"),
    "ops/kernels/*": (*_CORE, "topology/topology.h", "fusion/plan.h", "runtime/api/session.h", "ops/*"),
    # Of the other kernels XLA's knows what they share.
    "ops/xla/*": (
        *(*_CORE, "runtime/api/session.h", "ops/xla/*"),
        *("ops/compiled_call.h", "ops/device_tensors.h", "ops/gpu_kernels.h", "ops/tensor_adapter.h"),
    ),
    "python/*": (*_CORE, "runtime/api/session.h", "runtime/health/stack_dump.h", "python/*"),
}
FILES_PER_FOLDER = 15
# Headers of others, and the only folder that may include them.
FOREIGN = {
    "transport/mpi/": re.compile(r"mpi(-ext)?\.h$"),
    "ops/": re.compile(r"(tensorflow|tsl|xla|absl|Eigen|unsupported)/"),
    "cuda/": re.compile(r"(cuda\w*\.h$|nccl\w*\.h$|nv\w+\.h$|driver_types\.h$|cub/|thrust/|cooperative_groups)"),
    "python/": re.compile(r"(nanobind/|Python\.h$)"),
}
DEVICE_CONDITION = re.compile(r"CUDA|NCCL|HIP|ROCM|GPU|XLA|TENSORFLOW")


def files_of(*folders: str) -> list[Path]:
    found = [file for folder in folders for file in (NATIVE / folder).rglob("*")]
    return sorted(file for file in found if file.suffix in (".h", ".cc", ".inc", ".cu"))


def name_of(file: Path) -> str:
    return file.relative_to(NATIVE).as_posix()


def code_of(text: str) -> str:
    """The text without comments; line numbers stay. (A `//` inside a string is cut too, which hides nothing here.)"""
    text = re.sub(r"/\*.*?\*/", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text)


def matches(name: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^/]*"), name) is not None


def rule_for(name: str) -> tuple[str, ...]:
    exact = [allowed for pattern, allowed in RULES.items() if pattern == name]
    return (exact or [allowed for pattern, allowed in RULES.items() if matches(name, pattern)] or [()])[0]


def bad_includes(name: str, text: str) -> list[str]:
    """The includes in the file `name` that the rules do not allow."""
    bad = []
    for included in re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', code_of(text), flags=re.MULTILINE):
        if included.split("/")[0] in {pattern.split("/")[0] for pattern in RULES}:
            if not any(matches(included, pattern) for pattern in rule_for(name)):
                bad.append(included)
        elif any(foreign.match(included) and not name.startswith(home) for home, foreign in FOREIGN.items()):
            bad.append(included)
    return bad


def lines_with(pattern: str, file: Path) -> list[str]:
    code = code_of(file.read_text(encoding="utf-8")).splitlines()
    return [
        f"{name_of(file)}:{number}: {line.strip()}" for number, line in enumerate(code, 1) if re.search(pattern, line)
    ]


def test_no_part_of_the_session_includes_a_later_one():
    order = list(_RUNTIME)
    assert sorted(order) == sorted(path.name for path in (NATIVE / "runtime").iterdir() if path.is_dir())
    for part, below in _RUNTIME.items():
        assert all(order.index(each) < order.index(part) for each in below)


def test_folders_stay_small():
    """A newcomer sees what a folder holds."""
    counts = {folder: sum(file.parent == folder for file in files_of(".")) for folder in NATIVE.rglob("*")}
    assert {str(folder): count for folder, count in counts.items() if count > FILES_PER_FOLDER} == {}


@pytest.mark.parametrize("folder", [*ENGINE, "cuda", "ops", "python"])
def test_includes_follow_the_drawing(folder):
    files = files_of(folder)
    assert files, f"tf_ops/{folder} holds no sources; has it been renamed?"
    bad = {name_of(file): bad_includes(name_of(file), file.read_text(encoding="utf-8")) for file in files}
    assert not {name: includes for name, includes in bad.items() if includes}


@pytest.mark.parametrize(
    ("name", "include", "allowed"),
    [
        ("core/status.h", '"core/dtype.h"', True),
        ("core/status.h", '"topology/topology.h"', False),
        ("core/status.h", "<mpi.h>", False),
        ("transport/mpi/mpi_communicator.cc", "<mpi.h>", True),
        ("runtime/session/process.cc", "<mpi.h>", False),
        ("runtime/session/process.cc", '"transport/mpi/mpi_communicator.h"', True),
        ("collectives/task.h", '"transport/mpi/mpi_communicator.h"', False),
        ("collectives/task.h", '"transport/shm/node_channel.h"', False),
        ("collectives/fabric.h", '"transport/shm/node_channel.h"', True),
        ("collectives/hierarchical.cc", '"collectives/rail/direct_exchange.h"', False),
        ("collectives/patterns/ring.h", '"transport/transport.h"', False),
        ("fusion/plan.h", '"collectives/task.h"', False),
        ("ops/kernel.cc", '"tensorflow/core/framework/op.h"', True),
        ("ops/kernel.cc", '"runtime/api/session.h"', True),
        ("ops/kernel.cc", '"runtime/engine/engine.h"', False),
        ("runtime/engine/engine.cc", '"runtime/planned/planned_reductions.h"', False),
        ("runtime/named/named_matching.cc", '"runtime/planned/planned_reductions.h"', False),
        ("runtime/plans/plan_table.cc", '"runtime/gpu/device_paths.h"', False),
        ("runtime/planned/bucket_launcher.cc", '"runtime/gpu/device_paths.h"', True),
        ("ops/kernel.cc", '"ops/xla/custom_call.h"', False),
        ("ops/xla/kernel.cc", '"ops/compiled_call.h"', True),
        ("ops/xla/kernel.cc", '"ops/result_memory.h"', False),
        ("cuda/cuda_device.cc", "<cuda_runtime_api.h>", True),
        ("cuda/cuda_device.cc", '"cuda/kernels/launch.h"', True),
        ("cuda/cuda_device.cc", '"compute/cpu/elements.inc"', False),
        ("cuda/cuda_device.cc", '"collectives/task.h"', False),
        ("cuda/kernels/move.h", '"device/device.h"', False),
        ("runtime/gpu/devices.cc", "<cuda.h>", False),
        ("runtime/gpu/devices.cc", '"cuda/cuda_plugin.h"', False),
        ("device/work.cc", "<nccl.h>", False),
        ("python/module.cc", '"tensorflow/core/framework/op.h"', False),
        ("python/module.cc", '"runtime/engine/engine.h"', False),
        ("core/env/env.cc", "<nanobind/nanobind.h>", False),
        ("new_folder/file.cc", '"core/status.h"', False),
    ],
)
def test_the_rules_tell_right_from_wrong(name, include, allowed):
    assert (bad_includes(name, f"// first line\n#include {include}\n") == []) is allowed
    assert bad_includes(name, f"// #include {include}\n/* \n#include {include}\n*/") == []


def test_only_core_env_reads_the_environment():
    files = [file for file in files_of(".") if not name_of(file).startswith("core/env")]
    assert not [hit for file in files for hit in lines_with(r"\b(secure_getenv|getenv|setenv|putenv|environ)\b", file)]


def test_no_conditional_compilation_for_devices_outside_cuda():
    files = [file for file in files_of(".") if not name_of(file).startswith("cuda/")]
    conditions = [hit for file in files for hit in lines_with(r"^\s*#\s*(if|elif)", file)]
    assert not [hit for hit in conditions if DEVICE_CONDITION.search(hit.split(":", 2)[2])]


def test_no_exception_leaves_the_engine_or_an_op():
    assert not [hit for file in files_of(*ENGINE, "cuda", "ops") for hit in lines_with(r"\bthrow\b", file)]


def python_modules_without_tensorflow() -> list[str]:
    return [
        "smddp_tf",
        "smddp_tf._native.loader",
        "smddp_tf.basics",
        *(["smddp_tf.run"] if (ROOT / "smddp_tf/run").exists() else []),
    ]


@pytest.mark.parametrize("module", python_modules_without_tensorflow())
def test_import_does_not_load_tensorflow(module):
    program = f"import sys, {module}; print(sorted({{'tensorflow', 'keras', 'mpi4py'}} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
