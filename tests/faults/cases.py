"""The list of cases."""

from __future__ import annotations

import signal
import zipfile
from typing import Any

from tests.faults import faults
from tests.faults.case import Case
from tests.faults.places import ELASTIC, MPIRUN_ALONE, SMDDPRUN
from tests.faults.running import Running
from tests.support.fabrics import FABRICS

__all__ = ["CASES"]

_KILL = faults.signal_rank(signal.SIGKILL)
_STOP = faults.signal_rank(signal.SIGSTOP)
_ENDS = "survivors name the rank within 15 s; all ended, not with 0, within 30 s"
_STALL = {"SMDDP_STALL_WARN_SECONDS": "2", "SMDDP_STALL_ERROR_SECONDS": "8"}


# {0}: the victim.
_NAMED = r"[Rr]ank {0} .*has died|(sign of life|answer) from rank {0} "


def _traceback_is_there(running: Running) -> list[str]:
    return [] if "has a bug" in running.output else ["the exception is not in the output"]


def _checkpoints_are_whole(running: Running) -> list[str]:
    wrong = [] if "No space left on device" in running.output else ["the output does not say that the disk is full"]
    whole = [path for path in running.here.disk.glob("epoch-*.keras") if zipfile.is_zipfile(path)]
    return wrong + ([] if len(whole) > 1 else [f"only {len(whole)} checkpoint is left"])


def _saved_once(running: Running) -> list[str]:
    commits = [path.name.rpartition(".")[2] for path in (running.folder / "preempted").glob("*")]
    return [] if commits == ["commit-000000000001"] else [f"saved: {commits}"]


_KILLED = (
    Case(
        "kill -9 a rank", "all ended, not with 0, within 30 s; mpirun says so", _KILL,
        noticed=None, repeat=20,
    ),
    Case(
        "kill -9 a rank, launcher looks on", _ENDS, _KILL, launcher=MPIRUN_ALONE, message=_NAMED,
        repeat=20,
    ),
    Case(
        "kill -9 a rank of another node, launcher looks on", _ENDS, _KILL, launcher=MPIRUN_ALONE,
        pretended=2, message=_NAMED, repeat=20,
    ),
    Case(
        "kill -9 a rank, the others in C code, launcher looks on", "all ended, not with 0, within 30 s", _KILL,
        ("worker.py", "busy"), launcher=MPIRUN_ALONE, noticed=None,
    ),
    Case(
        "kill -9 the launcher", "all ended within 30 s", faults.kill_launcher, launcher_ended=None, noticed=None,
        repeat=20,
    ),
    Case(
        "kill -9 smddprun", "all ended within 30 s", faults.kill_launcher, launcher=SMDDPRUN, launcher_ended=None,
        noticed=None,
    ),
)  # fmt: skip

_FROZEN = (
    Case("SIGSTOP a rank", _ENDS, _STOP, message=_NAMED),
    Case("SIGSTOP a rank of another node", _ENDS, _STOP, pretended=2, message=_NAMED),
    Case("SIGSTOP a rank, launcher looks on", _ENDS, _STOP, launcher=MPIRUN_ALONE, message=_NAMED),
    Case(
        "SIGSTOP a rank, the others in C code", "all ended, not with 0, within 30 s", _STOP, ("worker.py", "busy"),
        noticed=None,
    ),
    Case(
        "a rank in C code for 25 s, Python's lock held", "no false alarm: all end well, right sums", faults.by_itself,
        ("worker.py", "hold"), goes_on=True, ended=60, launcher_ended=60, victim_survives=True,
    ),
)  # fmt: skip

_ONE_RANK = (
    Case(
        "exception in one rank", "all ended, not with 0, within 30 s; its traceback in the output", faults.by_itself,
        ("worker.py", "raise"), noticed=None, message=r"ValueError: rank {0} has a bug|[Rr]ank {0} .*ended",
    ),
    Case(
        "one rank never calls", "named after the set 8 s, all ended, not with 0, within 30 s", faults.by_itself,
        ("worker.py", "skip"), environment=_STALL, message=r"missing on rank {0}|[Rr]ank {0} ",
    ),
    Case(
        "one rank exits early", "survivors name the rank within 15 s; all ended, not with 0, within 30 s",
        faults.by_itself, ("worker.py", "exit"), message=r"[Rr]ank {0} .*ended its session",
    ),
    Case("SIGTERM to all", "all ended within 30 s", faults.terminate_all, noticed=None),
    Case("SIGTERM to mpirun", "all ended within 30 s", faults.terminate_launcher, noticed=None),
    Case("SIGTERM to smddprun", "all ended within 30 s", faults.terminate_launcher, launcher=SMDDPRUN, noticed=None),
)  # fmt: skip

_FIT: dict[str, Any] = {"program": ("fit_worker.py", "fit"), "ranks": 2, "victim": 1}
_IN_FIT = (
    Case("kill -9 a rank in model.fit, launcher looks on", _ENDS, _KILL, launcher=MPIRUN_ALONE,
         message=_NAMED, **_FIT),
    Case("SIGSTOP a rank in model.fit", _ENDS, _STOP, message=_NAMED, **_FIT),
    Case(
        "exception in a callback of model.fit", "all ended, not with 0, within 30 s; its traceback in the output",
        faults.on_signal_of_ours, noticed=None, check=_traceback_is_there,
        **{**_FIT, "program": ("fit_worker.py", "raise")},
    ),
    Case(
        "SIGTERM to all, PreemptionCheckpoint", "saved once; all ended, not with 0, within 30 s", faults.terminate_all,
        noticed=None, check=_saved_once, **{**_FIT, "program": ("fit_worker.py", "preempt")},
    ),
    Case(
        "SIGTERM to one rank, PreemptionCheckpoint", "saved once; all ended, not with 0, within 30 s",
        faults.terminate_rank, noticed=None, check=_saved_once, **{**_FIT, "program": ("fit_worker.py", "preempt")},
    ),
    Case(
        "disk full on checkpoint", "all ended, not with 0, within 30 s; rank 0 says so; older checkpoints are whole",
        faults.fill_disk, noticed=None, check=_checkpoints_are_whole, needs_root=True,
        **{**_FIT, "program": ("fit_worker.py", "save")},
    ),
)  # fmt: skip

_OVER: dict[str, Any] = {"pretended": 2, "message": _NAMED}
_FABRICS = tuple(
    Case(f"{name}, {layer}", _ENDS, fault, environment=FABRICS[layer], **_OVER, **more)
    for layer in FABRICS
    for name, fault, more in (
        ("kill -9 a rank of another node, launcher looks on", _KILL, {"launcher": MPIRUN_ALONE}),
        ("SIGSTOP a rank of another node", _STOP, {}),
    )
)

_HOSTS: dict[str, Any] = {"nodes": 4, "message": _NAMED}
_SMDDPRUN: dict[str, Any] = {**_HOSTS, "launcher": SMDDPRUN}
_CUT: dict[str, Any] = {"message": "sign of life from|answer from|has died"}  # either side may name the other
# Without MPI the kernel tells that the host does not answer: 3 s, and what a busy machine adds.
_SOON: dict[str, Any] = {"over_tcp": {"noticed": 3.5, "promise": _ENDS.replace("15 s", "3 s")}}
# A launcher cannot tell a silent host from a slow one, and Open MPI's waits for its daemon there.
_MPIRUN_HANGS: dict[str, Any] = {"launcher_ended": None}

_LAB = (
    Case(
        "link cut 5 s and healed", "nothing is lost: all end well, right sums", faults.cut_and_heal(5.0), nodes=4,
        goes_on=True, ended=60, launcher_ended=60, over_tcp={"environment": {"SMDDP_HEARTBEAT_TIMEOUT": "60"}},
    ),
    Case(
        "link cut 1 s and healed", "nothing is lost: all end well, right sums", faults.cut_and_heal(1.0), nodes=4,
        goes_on=True, ended=60, launcher_ended=60,
    ),
    Case("link cut for good", _ENDS, faults.cut, **{**_HOSTS, **_CUT, **_MPIRUN_HANGS, **_SOON}),
    Case("link cut for good, smddprun", _ENDS, faults.cut, **{**_SMDDPRUN, **_CUT, **_SOON}),
    Case("link of smddprun's own host cut for good", _ENDS, faults.cut, **{**_SMDDPRUN, **_CUT, "victim": 0, **_SOON}),
    Case("node frozen and cut", _ENDS, faults.silence_host, **_HOSTS, **_MPIRUN_HANGS, **_SOON),
    Case("node frozen and cut, smddprun", _ENDS, faults.silence_host, **_SMDDPRUN, **_SOON),
    Case("host lost", _ENDS, faults.lose_host, **_HOSTS, **_MPIRUN_HANGS, **_SOON),
    Case("host lost, smddprun", _ENDS, faults.lose_host, **_SMDDPRUN, **_SOON),
    Case("kill -9 a rank on another host", "all ended, not with 0, within 30 s", _KILL, nodes=4, noticed=None),
    Case(
        "kill -9 a rank on another host, launcher looks on", _ENDS, _KILL, repeat=20,
        **{**_HOSTS, "launcher": MPIRUN_ALONE},
    ),
    Case("SIGSTOP a rank on another host", _ENDS, _STOP, **_HOSTS),
    Case(
        "SIGSTOP a rank on another host for 8 s", "nothing is lost: all end well, right sums",
        faults.stop_and_continue(8.0), nodes=4, goes_on=True, ended=60, launcher_ended=60,
    ),
    Case(
        "kill -9 the launcher of 4 hosts", "all ended within 30 s", faults.kill_launcher, nodes=4, launcher_ended=None,
        noticed=None,
    ),
)  # fmt: skip

_IN_PLACE: dict[str, Any] = {"launcher": ELASTIC, "goes_on": True, "ended": 60.0, "launcher_ended": 60.0}
_RESUMED = "the others train on within {} s; all end well, right results"
_ELASTIC = (
    Case("kill -9 a rank, elastic", _RESUMED.format(3), _KILL, ("elastic_worker.py", "steps"), noticed=3.0, repeat=20,
         **_IN_PLACE),
    Case("SIGSTOP a rank, elastic", _RESUMED.format(30), _STOP, ("elastic_worker.py", "steps"), noticed=30.0,
         **_IN_PLACE),
    Case("kill -9 a rank with a part of the state, elastic", _RESUMED.format(10), _KILL, ("elastic_worker.py", "parts"),
         noticed=10.0, repeat=4, **_IN_PLACE),
)  # fmt: skip

CASES = (*_KILLED, *_FROZEN, *_ONE_RANK, *_IN_FIT, *_ELASTIC, *_FABRICS, *_LAB)
