"""The direction of dependence, as drawn in docs/architecture.md, holds in the sources.

The build enforces most of it by include paths (cmake/SmddpFolder.cmake); the finer rules are only here.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.include_rules import NATIVE, ROOT, RULES, RUNTIME, code_of, files_of, name_of

ENGINE = ("core", "topology", "transport", "compute", "device", "collectives", "fusion", "runtime")
FILES_PER_FOLDER = 15
# Headers of others, and the only folder that may include them.
FOREIGN = {
    "transport/mpi/": re.compile(r"mpi(-ext)?\.h$"),
    "ops/": re.compile(r"(tensorflow|tsl|xla|absl|Eigen|unsupported)/"),
    "cuda/": re.compile(r"cuda\.h$"),
    # The CUDA runtime is another version's than TensorFlow's, and NCCL's header another's than the NCCL that is loaded.
    "nowhere/": re.compile(r"(cuda_\w+\.h$|nccl\w*\.h$|nv\w+\.h$|driver_types\.h$|cub/|thrust/|cooperative_groups)"),
    "python/": re.compile(r"(nanobind/|Python\.h$)"),
}
DEVICE_CONDITION = re.compile(r"CUDA|NCCL|HIP|ROCM|GPU|XLA|TENSORFLOW")


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
    order = list(RUNTIME)
    assert sorted(order) == sorted(path.name for path in (NATIVE / "runtime").iterdir() if path.is_dir())
    for part, below in RUNTIME.items():
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
        ("runtime/session/process.cc", '"transport/mpi/mpi_communicator.h"', False),
        ("runtime/session/session_manager.cc", '"transport/tcp/tcp_communicator.h"', True),
        ("runtime/engine/engine.cc", '"transport/tcp/tcp_transport.h"', False),
        ("collectives/task.h", '"transport/mpi/mpi_communicator.h"', False),
        ("collectives/task.h", '"transport/shm/node_channel.h"', False),
        ("collectives/fabric.h", '"transport/shm/node_channel.h"', True),
        ("collectives/hierarchical.cc", '"collectives/rail/direct_exchange.h"', False),
        ("collectives/patterns/doubling.h", '"transport/transport.h"', False),
        ("fusion/plan.h", '"collectives/task.h"', False),
        ("ops/kernel.cc", '"tensorflow/core/framework/op.h"', True),
        ("ops/kernel.cc", '"runtime/api/session.h"', True),
        ("ops/kernel.cc", '"runtime/engine/engine.h"', False),
        ("runtime/engine/engine.cc", '"runtime/plans/planned_reductions.h"', False),
        ("runtime/named/named_matching.cc", '"runtime/plans/planned_reductions.h"', False),
        ("runtime/plans/plan_table.cc", '"runtime/join/join_protocol.h"', False),
        ("runtime/plans/bucket_launcher.cc", '"runtime/gpu/device_paths.h"', True),
        ("ops/kernel.cc", '"ops/xla/custom_call.h"', False),
        ("ops/xla/kernel.cc", '"ops/compiled_call.h"', True),
        ("ops/xla/kernel.cc", '"ops/collective_kernel.h"', False),
        ("cuda/driver.h", "<cuda.h>", True),
        ("cuda/cuda_device.cc", "<cuda_runtime_api.h>", False),
        ("cuda/cuda_device.cc", '"cuda/kernels/jobs.h"', True),
        ("cuda/cuda_device.cc", '"compute/cpu/elements.inc"', False),
        ("cuda/cuda_device.cc", '"collectives/task.h"', False),
        ("cuda/kernels/move.h", '"device/device.h"', False),
        ("runtime/gpu/devices.cc", "<cuda.h>", False),
        ("runtime/gpu/devices.cc", '"cuda/cuda_device.h"', False),
        ("device/events.cc", "<nccl.h>", False),
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
