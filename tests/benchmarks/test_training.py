"""The pure functions of the benchmark of whole training, and of the one of launches."""

from __future__ import annotations

import io

import numpy as np
import pytest

pytest.importorskip("rich")
from rich.console import Console

from benchmarks import findings, report, targets
from benchmarks.training import common, models, suite


def row(candidate, ranks, median, model="MLP", wrong=0):
    size = 4 * models.parameters_of(model)
    return findings.Row("training", ranks, candidate, "step", size, model, wrong, median, 0.9 * median, 1.1 * median, 7)


def verdict_of(rows, what):
    return next(one for one in targets.verdicts(findings.Findings(rows=rows)) if one.what.startswith(what))


def answer(before="a", after="b", finite=True, model="MLP"):
    return {"before": before, "after": after, "finite": finite, "parameters": models.parameters_of(model)}


def test_parameters_are_the_published_ones():
    assert models.parameters_of("MLP") == 7 * 1024 * 1025
    assert models.parameters_of("ResNet-20") == 272_474
    assert models.parameters_of("transformer") == 4 * 789_760


@pytest.mark.parametrize("model", models.MODELS)
def test_parameters_are_those_of_the_models_in_keras(model):
    pytest.importorskip("keras")
    built, loss = models.build(model)
    assert sum(int(np.prod(weight.shape)) for weight in built.trainable_variables) == models.parameters_of(model)
    x, y = models.batch_of(model, 0)
    assert built.input_shape[1:] == x.shape[1:]
    assert np.isfinite(float(loss(y, np.zeros((len(x), *built.output_shape[1:]), np.float32))))


@pytest.mark.parametrize("model", models.MODELS)
def test_each_rank_has_a_batch_of_its_own_and_always_the_same(model):
    first, second, again = (models.batch_of(model, rank) for rank in (0, 1, 0))
    for one, other, same in zip(first, second, again):
        assert not np.array_equal(one, other)
        np.testing.assert_array_equal(one, same)


def test_fingerprints_differ_by_a_bit():
    weights = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(2, np.float32)]
    other = [weights[0], np.array([1, np.nextafter(np.float32(1), np.float32(2))], np.float32)]
    assert common.fingerprint(weights) == common.fingerprint([weight.copy() for weight in weights])
    assert common.fingerprint(weights) != common.fingerprint(other)


@pytest.mark.parametrize(
    ("second", "together", "wrong"),
    [
        (answer(), True, 0),
        (answer(after="c"), True, 1),
        (answer(after="c"), False, 0),
        (answer(), False, 1),
        (answer(before="c"), True, 1),
        (answer(after="a"), True, 1),
        (answer(finite=False), True, 1),
        (answer(model="ResNet-20"), True, 1),
    ],
)
def test_ranks_that_have_trained_wrongly_are_counted(second, together, wrong):
    assert suite.wrong_ranks("MLP", [answer(), second], together) == wrong


def test_alone_is_one_process_on_one_core():
    alone = suite.alone(suite.BY_NAME["smddp_tf"])
    assert alone.command(1)[:3] == ["taskset", "-c", "0"]
    assert "mpirun" not in " ".join(alone.command(1))
    assert alone.variables["SMDDP_BENCH_RANK"] == "0"


@pytest.mark.parametrize(("ours", "passed"), [(1.19, True), (1.21, False)])
def test_the_share_of_communication_beside_a_peers(ours, passed):
    rows = [row("smddp_tf", 1, 0.01), row("smddp_tf", 2, 0.01 * ours)]
    rows += [row("Horovod", 1, 0.02), row("Horovod", 2, 0.028)]
    verdict = verdict_of(rows, "MLP training: communication's share less than Horovod's")
    assert verdict.measured == pytest.approx(0.4 / (ours - 1))
    assert verdict.passed is passed


def test_steps_are_compared_with_the_ways_of_tensorflow_and_with_fit_alone():
    rows = [row("smddp_tf", 2, 0.03), row("Horovod", 2, 0.02)]
    rows += [row("smddp_tf", 2, 0.0054, "5 ms"), row("Keras fit", 2, 0.005, "5 ms")]
    assert verdict_of(rows, "MLP training: step over Horovod's").measured == pytest.approx(1.5)
    assert verdict_of(rows, "step of 5 ms, np 2").measured == pytest.approx(1.08)


def test_the_table_shows_both_steps_and_the_share():
    text = io.StringIO()
    rows = [row("smddp_tf", 1, 0.02), row("smddp_tf", 2, 0.025, wrong=1), row("PyTorch DDP", 2, 0.04)]
    report.show(findings.Findings(rows=rows), Console(file=text, width=160))
    ours, peer = (next(line for line in text.getvalue().splitlines() if name in line) for name in ("smddp_tf", "PyT"))
    assert "20.0 ms" in ours
    assert "25.0 ms" in ours
    assert "0.25" in ours
    assert ours.rstrip(" │|┃").endswith("1")
    assert "40.0 ms" in peer


def of_launch(**more: list[float]) -> dict[str, targets.Verdict]:
    seconds = {"first step, one process": [2.0, 4.0, 3.0], "first step, two processes": [3.2]}
    seconds |= {"first step, 2 ranks": [3.6]} | {f"smddprun -np {ranks} true": [0.01 * ranks] for ranks in (2, 64)}
    found = targets.verdicts(findings.Findings(launch={**seconds, **more}))
    return {one.what: one for one in found if "first step" in one.what or "smddprun" in one.what}


def test_verdicts_on_a_launch():
    found = of_launch()
    assert found["first step on 2 ranks over that of one process without us"].measured == pytest.approx(1.2)
    assert found["first step on 2 ranks over that of two processes without us"].measured == pytest.approx(1.125)
    assert [found[f"smddprun -np {ranks} true"].measured for ranks in (2, 64)] == pytest.approx([0.02, 0.64])
    assert [one.passed for one in found.values()] == [False, True, True, True]
    assert of_launch(**{"smddprun -np 64 true": [2.5]})["smddprun -np 64 true"].passed is False


def test_fit_on_one_rank_is_compared_with_other_processes_and_with_the_same():
    seconds = {"Keras fit": [0.01, 0.014, 0.012], "smddp_tf": [0.0126, 0.02, 0.011]}
    alone = {"MLP": {**seconds, "optimizer not wrapped": [0.0125]}}
    found = {one.what: one for one in targets.verdicts(findings.Findings(alone=alone))}
    over = "MLP training, one rank: step over"
    assert found[f"{over} `fit` without us"].measured == pytest.approx(1.05)
    assert found[f"{over} one with Keras's optimizer"].measured == pytest.approx(1.008)
    text = io.StringIO()
    report.show(findings.Findings(alone=alone), Console(file=text, width=160))
    assert "12.0 ms (10.0 ms - 14.0 ms)" in text.getvalue()
