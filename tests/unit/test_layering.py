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

# Which headers may be included, by the including file; the first pattern that matches it decides. `*` stops at `/`.
_BELOW_COLLECTIVES = (
    *("core/*", "topology/*", "transport/*", "compute/*", "device/*", "collectives/*", "collectives/patterns/*"),
)
RULES = {
    "core/*": ("core/*",),
    "topology/*": ("core/*", "topology/*"),
    "transport/*": ("core/*", "topology/*", "transport/*"),
    "transport/inproc/*": ("core/*", "topology/*", "transport/*", "transport/inproc/*"),
    "transport/shm/*": ("core/*", "topology/*", "transport/*", "transport/shm/*"),
    "transport/mpi/*": ("core/*", "topology/*", "transport/*", "transport/mpi/*"),
    "compute/*": ("core/*", "compute/*"),
    "compute/cpu/*": ("core/*", "compute/*", "compute/cpu/*"),
    "device/*": ("core/*", "compute/*", "device/*"),
    # Implements what device/ asks for.
    "cuda/*": ("core/*", "compute/*", "device/*", "cuda/*", "cuda/kernels/*"),
    # The CPU's own code for one element.
    "cuda/kernels/elements.h": ("compute/cpu/elements.inc",),
    "cuda/kernels/*": ("core/*", "compute/*", "cuda/kernels/*"),
    "collectives/device/*": (*_BELOW_COLLECTIVES, "collectives/device/*"),
    # Index arithmetic only.
    "collectives/patterns/*": ("core/*", "collectives/patterns/*"),
    # An algorithm over messages knows no other algorithm and no way of carrying messages.
    "collectives/p2p/*": (*_BELOW_COLLECTIVES, "collectives/p2p/*"),
    # The node stages read and write the slots of shared memory in place.
    "collectives/node/*": (*_BELOW_COLLECTIVES, "collectives/node/*", "transport/shm/node_channel.h"),
    "collectives/fabric.h": (*_BELOW_COLLECTIVES, "transport/shm/node_channel.h"),
    # The only place that names algorithms.
    "collectives/registry.cc": (*_BELOW_COLLECTIVES, "collectives/p2p/*"),
    "collectives/*": (*_BELOW_COLLECTIVES, "collectives/node/*"),
    "fusion/*": ("core/*", "fusion/*"),
    "runtime/*": (*_BELOW_COLLECTIVES, "collectives/*/*", "transport/*/*", "fusion/*", "runtime/*"),
    "ops/*": ("core/*", "topology/topology.h", "fusion/plan.h", "runtime/session.h", "ops/*"),
    # Of the other kernels XLA's knows what they share.
    "ops/xla/*": (
        *("core/*", "runtime/session.h", "ops/xla/*"),
        *("ops/compiled_call.h", "ops/device_tensors.h", "ops/gpu_kernels.h", "ops/tensor_adapter.h"),
    ),
    "python/*": (
        *(f"{folder}/*" for folder in ENGINE),
        "collectives/*/*",
        "transport/inproc/*",
        "transport/shm/*",
        "python/*",
    ),
}
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
        ("transport/mpi/mpi_world.cc", "<mpi.h>", True),
        ("runtime/process.cc", "<mpi.h>", False),
        ("runtime/process.cc", '"transport/mpi/mpi_world.h"', True),
        ("collectives/task.h", '"transport/mpi/mpi_world.h"', False),
        ("collectives/task.h", '"transport/shm/node_channel.h"', False),
        ("collectives/fabric.h", '"transport/shm/node_channel.h"', True),
        ("collectives/hierarchical.cc", '"collectives/p2p/direct_exchange.h"', False),
        ("collectives/patterns/ring.h", '"transport/transport.h"', False),
        ("fusion/plan.h", '"collectives/task.h"', False),
        ("ops/kernel.cc", '"tensorflow/core/framework/op.h"', True),
        ("ops/kernel.cc", '"runtime/session.h"', True),
        ("ops/kernel.cc", '"runtime/engine.h"', False),
        ("ops/kernel.cc", '"ops/xla/custom_call.h"', False),
        ("ops/xla/kernel.cc", '"ops/compiled_call.h"', True),
        ("ops/xla/kernel.cc", '"ops/result_memory.h"', False),
        ("cuda/cuda_device.cc", "<cuda_runtime_api.h>", True),
        ("cuda/cuda_device.cc", '"cuda/kernels/launch.h"', True),
        ("cuda/cuda_device.cc", '"compute/cpu/elements.inc"', False),
        ("cuda/cuda_device.cc", '"collectives/task.h"', False),
        ("cuda/kernels/move.h", '"device/device.h"', False),
        ("runtime/devices.cc", "<cuda.h>", False),
        ("runtime/devices.cc", '"cuda/cuda_plugin.h"', False),
        ("device/work.cc", "<nccl.h>", False),
        ("python/module.cc", '"tensorflow/core/framework/op.h"', False),
        ("core/env.cc", "<nanobind/nanobind.h>", False),
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
        "smddp_tf._loader",
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
