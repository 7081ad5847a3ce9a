"""DeepXDE: its Poisson problem on two ranks against one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from tests.clients.jobs import SCRIPTS, Failed, Result, run

CLIENT = "deepxde"
_V1 = {"DDE_BACKEND": "tensorflow.compat.v1"}
_REFUSED = "only implemented in backend tensorflow.compat.v1"


def check(folder: Path, steps: int) -> Iterator[Result]:
    """Trains in `folder` and yields a row for each comparison.

    The residual's loss is a mean over the points and the boundary's is the same on all ranks, so the average of two
    ranks' gradients, each on its half of the points, is the gradient of one process on all of them.
    """
    for passes in (1, 2):
        yield _strong_scaling(folder, steps, passes)
    yield _other_backend(folder)


def _strong_scaling(folder: Path, steps: int, passes: int) -> Result:
    """With two passes for one update: their mean, which is that of one, because every pass has all points of a rank."""
    what = f"Poisson 1D, `tensorflow.compat.v1`, float64, points split, {steps} steps"
    what += f" of {passes} passes" if passes > 1 else ""
    program, two = f"python {SCRIPTS / 'poisson.py'}", f"two-{passes}"
    for name in ("one", two):
        (folder / name).mkdir(exist_ok=True)
    run(f"{program} {steps} one 1", folder, variables=_V1)
    run(f"horovodrun -np 2 {program} {passes * steps} {two} {passes}", folder, variables=_V1)
    printed = run(f"python {SCRIPTS / 'compare_poisson.py'} one/rank0.npz {two}/rank0.npz {two}/rank1.npz", folder)
    found = json.loads(printed.split("COMPARED")[-1])
    if found["ranks"] != [1, 2, 2] or found["points"] != [20, 11, 11]:
        return Result(CLIENT, what, problem=f"ranks {found['ranks']}, points {found['points']}: not split")
    if not found["losses_differ"] or found["moved"] < 1e-3:
        return Result(CLIENT, what, problem="the ranks had equal points, or nothing was trained")
    if found["between_ranks"] > 0:
        return Result(CLIENT, what, problem=f"the ranks differ by {found['between_ranks']:.1e}")
    return Result(CLIENT, what, found["difference"], 1e-6)


def _other_backend(folder: Path) -> Result:
    """With its backend `tensorflow`, DeepXDE takes no ranks from any Horovod."""
    what = "`DDE_BACKEND=tensorflow`: one process imports it; DeepXDE itself refuses ranks"
    (folder / "tensorflow").mkdir()
    run("python -c 'import deepxde'", folder, variables={"DDE_BACKEND": "tensorflow"})
    try:
        run("horovodrun -np 2 python -c 'import deepxde'", folder, variables={"DDE_BACKEND": "tensorflow"})
    except Failed as refused:
        if _REFUSED in str(refused):
            return Result(CLIENT, what)
        raise
    return Result(CLIENT, what, problem="ranks were not refused")
