"""DeePMD-kit: `dp train` on two ranks against one process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.clients.jobs import SCRIPTS, Failed, Result, run

CLIENT = "deepmd-kit"
HALF, WHOLE = 4, 8  # frames of tests/clients/scripts/deepmd_data.py
_TRAIN = "dp train --skip-neighbor-stat"


def check(folder: Path, steps: int) -> Iterator[Result]:
    """Trains in `folder` and yields a row for each comparison.

    Every loss is a mean over the frames of a batch, so the average of two ranks' gradients, each on its half of the
    frames, is the gradient of one process on all of them. The halves differ: without a reduction the ranks would not
    come near.
    """
    run(f"python {SCRIPTS / 'deepmd_data.py'} {folder}", folder)
    yield _halves(folder, steps, "float64", 1e-6)
    yield _same_line(folder, steps)
    yield _halves(folder, steps, "float16", 5e-3)


def _halves(folder: Path, steps: int, precision: str, most: float) -> Result:
    """All runs go on from one checkpoint, so that they share the statistics of the data and the first values."""
    what = f"`horovodrun -np 2 dp train`, {precision}, each rank half of the frames, {steps} steps"
    start = folder / "whole" / f"start-{precision}"
    _input(folder / "whole", start.name, 1, WHOLE, precision)
    run(f"{_TRAIN} {start.name}.json", start.parent)
    for place, batch in (("whole", WHOLE), ("rank0", HALF), ("rank1", HALF)):
        _input(folder / place, precision, steps, batch, precision)
    go_on = f"{_TRAIN} --init-model {start}-1 {precision}.json"
    run(go_on, folder / "whole")
    run(go_on, folder / "rank0")  # the control: rank 0's half alone
    (folder / "rank0" / f"{precision}-{steps}.index").rename(folder / "rank0" / f"alone-{precision}-{steps}.index")
    data = folder / "rank0" / f"{precision}-{steps}.data-00000-of-00001"
    data.rename(data.with_name(f"alone-{data.name}"))
    run(f"horovodrun -np 2 bash -c 'cd ../rank$OMPI_COMM_WORLD_RANK && {go_on}'", folder / "whole")
    places = (f"whole/{precision}", f"rank0/{precision}", f"rank0/alone-{precision}", f"whole/{start.name}")
    which = "all" if precision == "float64" else "model"  # Adam's means may be next to nothing, and noise in float16
    ranks, alone, moved = _distances(folder, which, *(f"{p}-{1 if 'start' in p else steps}" for p in places))
    if min(alone, moved) < 10 * most:
        return Result(CLIENT, what, problem=f"the control is not far enough: {alone:.1e} alone, {moved:.1e} moved")
    curves = [_curve(folder / place / f"{precision}.out") for place in ("whole", "rank0")]
    if precision == "float64" and curves[0] != curves[1]:  # rounded to three digits
        return Result(CLIENT, what, problem="the learning curves differ")
    return Result(CLIENT, what, ranks, most)


def _same_line(folder: Path, steps: int) -> Result:
    """DeePMD-kit's own test line, from nothing. By default it multiplies the learning rate by the number of ranks."""
    what = f"`horovodrun -np 2 dp train -m workers input.json`, {steps} steps, learning rate times 2"
    where = folder / "whole"
    _input(where, "input", steps, WHOLE, "float64", scale_by_worker="linear")
    _input(where, "twice", steps, WHOLE, "float64", rate=2e-2)
    run(f"{_TRAIN} twice.json", where)
    output = run(f"horovodrun -np 2 {_TRAIN} -m workers input.json", where)
    if "Scale learning rate by coef: 2" not in output:
        raise Failed(f"DeePMD-kit did not see two ranks.\n{output}")
    run("horovodrun -np 2 dp freeze -c . -o frozen.pb", where)
    [difference] = _distances(folder, "all", f"whole/twice-{steps}", f"whole/input-{steps}")
    return Result(CLIENT, what, difference, 1e-6)


def _distances(folder: Path, which: str, *prefixes: str) -> list[float]:
    printed = run(f"python {SCRIPTS / 'compare_checkpoints.py'} {which} {' '.join(prefixes)}", folder)
    distances: list[float] = json.loads(printed.split("DISTANCES")[-1])
    return distances


def _curve(file: Path) -> list[list[str]]:
    """Of each line the step and the columns on the validation data, which are the same in all runs."""
    lines = [line.split() for line in file.read_text(encoding="utf-8").splitlines()]
    names = lines[0][1:]
    kept = [at for at, name in enumerate(names) if name == "step" or name.endswith("_val")]
    return [[line[at] for at in kept] for line in lines[1:] if not line[0].startswith("#")]


def _input(
    where: Path, name: str, steps: int, batch: int, precision: str, rate: float = 1e-2, scale_by_worker: str = "none"
) -> None:
    of_layers = "float64" if precision == "float64" else "float32"
    training: dict[str, Any] = {
        "training_data": {"systems": ["data"], "batch_size": batch},
        "validation_data": {"systems": ["../whole/data"], "batch_size": WHOLE},
        "numb_steps": steps,
        "seed": 3,
        "disp_file": f"{name}.out",
        "disp_freq": 1,
        "save_ckpt": name,
        "save_freq": steps,
    }
    if precision == "float16":
        training["mixed_precision"] = {"compute_prec": "float16", "output_prec": "float32"}
    content = {
        "model": {
            "type_map": ["O", "H"],
            "descriptor": {
                "type": "se_e2_a", "sel": [6, 8], "rcut": 3.9, "rcut_smth": 0.5, "neuron": [4, 8], "axis_neuron": 2,
                "seed": 1, "precision": of_layers,
            },
            "fitting_net": {"neuron": [8, 8], "seed": 2, "precision": of_layers},
        },
        "learning_rate": {
            "type": "exp", "start_lr": rate, "stop_lr": rate / 10, "decay_steps": 10,
            "scale_by_worker": scale_by_worker,
        },
        "loss": {
            "type": "ener", "start_pref_e": 1, "limit_pref_e": 1, "start_pref_f": 10, "limit_pref_f": 1,
            "start_pref_v": 0, "limit_pref_v": 0,
        },
        "training": training,
    }  # fmt: skip
    (where / f"{name}.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
