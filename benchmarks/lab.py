"""Between nodes: on the lab's network namespaces, joined by rate-limited links. `python -m benchmarks.lab`.

The link decides here, so candidates run one after the other; a bound can be computed, and the kernel counts the bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.cases import GATHERS, Case
from benchmarks.findings import Findings, Row, machine, results_path
from benchmarks.measure import Timing, slowest_rank, wire_bound
from benchmarks.peers import ROOT
from benchmarks.report import console_of, finish

__all__ = ["FULL", "TARGETS", "Lab", "LabError", "Setting", "measure_lab", "why_not"]

MIB = 1 << 20
SCRIPT = Path(os.environ.get("SMDDP_LAB", ROOT / ".." / "shared" / "lab" / "lab.sh"))
DELAY_MICROSECONDS = 200
RUN_SECONDS = 300.0
# name -> backend, mpirun's arguments
CANDIDATES = {
    "smddp_tf": ("smddp", ""),
    "Open MPI 5": ("mpi", ""),
    "Open MPI 5, btl_tcp_flags 1": ("mpi", "--mca btl_tcp_flags 1"),
}


class LabError(RuntimeError):
    """The lab, or a program in it, failed."""


@dataclass(frozen=True)
class Setting:
    """A lab and what is measured in it: sizes for us, and up to which size for the others, who take longer."""

    nodes: int
    per_node: int
    rate: int
    mebibytes: tuple[int, ...] = (1, 25, 100)
    others_up_to: int = 100
    bfloat16: tuple[int, ...] = ()
    int8: tuple[int, ...] = ()
    reducescatter: tuple[int, ...] = ()
    gathers: tuple[int, ...] = ()

    @property
    def place(self) -> str:
        return f"lab {self.nodes}x{self.per_node} {self.rate}"


TARGETS = (
    Setting(4, 2, 200, others_up_to=25, bfloat16=(25,), int8=(25, 100), reducescatter=(25, 100), gathers=(25, 100)),
    Setting(8, 1, 200, others_up_to=25),
)
FULL = tuple(
    Setting(nodes, per_node, rate, bfloat16=(1, 25, 100))
    for rate in (200, 1000)
    for nodes, per_node in ((2, 2), (4, 2), (8, 1))
)


def why_not(script: Path = SCRIPT) -> str:
    """Why there can be no lab here; empty when there can."""
    if not script.exists():
        return f"no lab script at {script}; its path can be given as SMDDP_LAB"
    if os.geteuid() != 0:
        return "the lab needs root"
    if not os.path.exists("/dev/net/tun"):
        return "the lab needs TUN (/dev/net/tun)"
    missing = [tool for tool in ("ip", "tc", "nsenter", "unshare", "cc") if not shutil.which(tool)]
    return f"the lab needs {', '.join(missing)}" if missing else ""


class Lab:
    """Nodes joined by links of `rate` Mbit/s. A context manager: on leaving, all nodes are gone.

    A command that runs in it for longer than `seconds` is ended.
    """

    def __init__(self, nodes: int, rate: int, script: Path = SCRIPT, seconds: float = RUN_SECONDS) -> None:
        self._nodes, self._rate, self._script, self._seconds = nodes, rate, str(script.resolve()), seconds

    def __enter__(self) -> Lab:
        self._call("up", self._nodes, self._rate, DELAY_MICROSECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._call("down")

    def run(
        self,
        per_node: int,
        mpirun_arguments: str,
        module: str,
        *arguments: str,
        python: Path = Path(sys.executable),
        variables: Mapping[str, str] | None = None,
    ) -> list[Any]:
        """Runs `python -m module RANKS-FOLDER...` on all nodes; returns what each rank wrote, by rank."""
        with tempfile.TemporaryDirectory(prefix="smddp_lab_bench_") as folder:
            command = [python, "-m", module, *(part.replace("{folder}", folder) for part in arguments)]
            self._call("run", "ompi", self._nodes, per_node, mpirun_arguments, *command, variables=variables)
            files = [Path(folder) / f"{rank}.json" for rank in range(self._nodes * per_node)]
            return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def execute(self, node: int, *command: Any) -> tuple[int, str]:
        """Runs a command on one node; returns its exit code and what it printed."""
        return self._ask("exec", node, *command)

    def control(self, *words: Any) -> None:
        """`cut 2`, `heal 2`, `delay 1000`, ...: see the lab's README."""
        self._call(*words)

    def _call(self, *arguments: Any, variables: Mapping[str, str] | None = None) -> None:
        code, output = self._ask(*arguments, variables=variables)
        if code != 0:
            raise LabError(f"lab.sh {' '.join(map(str, arguments))[:80]}: exit {code}\n{output.strip()[-2000:]}")

    def _ask(self, *arguments: Any, variables: Mapping[str, str] | None = None) -> tuple[int, str]:
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            **(variables or {}),
        }
        with tempfile.TemporaryFile() as log:  # a file: what the lab leaves in the background would keep a pipe open
            command = ["timeout", "-k", "5", str(self._seconds), self._script, *map(str, arguments)]
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            log.seek(0)
            return done.returncode, log.read().decode(errors="replace")


def measure_lab(settings: tuple[Setting, ...], say: Callable[[str], None], findings: Findings) -> None:
    """Measures all candidates in each setting. What fails is noted and left out."""
    for setting in settings:
        with Lab(setting.nodes, setting.rate) as lab:
            for name, (backend, mpirun_arguments) in CANDIDATES.items():
                say(f"{setting.place}: {name}")
                cases = cases_for(setting, ours=backend == "smddp")
                try:
                    findings.rows += _rows(lab, setting, name, backend, mpirun_arguments, cases, findings.notes)
                except LabError as error:
                    findings.notes.append(f"{name}, {setting.place}: {error}")


def cases_for(setting: Setting, ours: bool) -> list[tuple[Case, int]]:
    """Cases with the number of repetitions: about 12 s of link time for us, 4 s for the others, who need more."""
    cases = []
    for mib in setting.mebibytes:
        bound = wire_bound(mib * MIB, setting.nodes, setting.rate * 1e6)
        if ours:
            cases.append((Case("array", mib * MIB), max(3, min(15, int(12 / bound)))))
        elif mib <= setting.others_up_to:
            cases.append((Case("array", mib * MIB), max(1, min(7, int(4 / bound)))))
        for door, sizes in (("bfloat16", setting.bfloat16), ("int8", setting.int8)):
            if ours and mib in sizes:
                cases.append((Case(door, mib * MIB), max(3, min(15, int(12 / bound)))))
        if ours and mib in setting.reducescatter:
            cases.append((Case("reducescatter", mib * MIB), max(3, min(15, int(24 / bound)))))
        if ours and mib in setting.gathers:
            cases += [(Case(door, mib * MIB), max(3, min(15, int(12 / bound)))) for door in GATHERS]
    return cases


def _rows(
    lab: Lab,
    setting: Setting,
    name: str,
    backend: str,
    mpirun_arguments: str,
    cases: list[tuple[Case, int]],
    notes: list[str],
) -> list[Row]:
    ranks = setting.nodes * setting.per_node
    as_json = json.dumps([{"case": case.as_json(), "repetitions": repetitions} for case, repetitions in cases])
    worker = (backend, str(ranks), "{folder}", as_json)
    answers = lab.run(setting.per_node, mpirun_arguments, "benchmarks.lab_worker", *worker)
    rows = []
    for (case, _), of_ranks in zip(cases, zip(*answers)):
        if failure := next((answer["failure"] for answer in of_ranks if "failure" in answer), None):
            notes.append(f"{name}, {setting.place}, {case.label}: skipped, {failure}")
            continue
        timing = Timing.of(slowest_rank([answer["seconds"] for answer in of_ranks]))
        wrong = sum(answer["wrong"] for answer in of_ranks)
        sent = max(answer["sent"] for answer in of_ranks)
        rows.append(Row(setting.place, ranks, name, case.door, case.bytes, "", wrong, **vars(timing), sent=sent))
    return rows


def main() -> None:
    """All settings, or those that the targets name. Skips clearly where there can be no lab."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lab", description=__doc__)
    parser.add_argument("--targets", action="store_true", help="only what the targets name: about 4 minutes")
    parser.add_argument("--places", help='only these of the settings, joined by commas: "4x2 200,8x1 200"')
    parser.add_argument("--output", type=Path, help="results file")
    options = parser.parse_args()
    console = console_of(width=160)
    if reason := why_not():
        console.print(f"no lab benchmark: {reason}")
        return
    settings = TARGETS if options.targets else FULL
    if options.places:
        wanted = [f"lab {place}" for place in options.places.split(",")]
        settings = tuple(setting for setting in settings if setting.place in wanted)
    findings = Findings(machine=machine())
    measure_lab(settings, console.print, findings)
    path = options.output or results_path("lab")
    finish(findings, path, console)


if __name__ == "__main__":
    main()
