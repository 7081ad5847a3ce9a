"""The pure parts of the benchmarks: what is made of times, and how a target is judged."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os

import numpy as np
import pytest

pytest.importorskip("rich")
from rich.console import Console

from benchmarks import cases, findings, lab, lab_worker, measure, peers, plots, report, shapes, suites, targets
from benchmarks.training import suite as training
from benchmarks.training.models import FIVE_MS, MODELS, parameters_of

MIB = 1 << 20


def row(candidate: str, door: str = "array", size: int = 64 * MIB, ranks: int = 2, **other: object) -> findings.Row:
    values = {"place": "node", "model": "", "wrong": 0, "median": 1.0, "p10": 0.9, "p90": 1.1, "repetitions": 5}
    return findings.Row(candidate=candidate, door=door, bytes=size, ranks=ranks, **{**values, **other})


def verdict_of(found: findings.Findings, what: str) -> targets.Verdict:
    return next(one for one in targets.verdicts(found) if one.what.startswith(what))


@pytest.mark.parametrize("percent", [0, 10, 37.5, 50, 90, 100])
@pytest.mark.parametrize("count", [1, 2, 5, 14])
def test_percentiles_are_numpys(percent, count):
    values = [(7 * i) % 11 + i / 3 for i in range(count)]
    assert measure.percentile(values, percent) == pytest.approx(np.percentile(values, percent))


def test_a_collective_takes_as_long_as_its_slowest_rank():
    assert measure.slowest_rank([[1.0, 5.0, 2.0], [3.0, 4.0, 2.5]]) == [3.0, 5.0, 2.5]


def test_timing_of_repetitions():
    timing = measure.Timing.of([3.0, 1.0, 2.0, 5.0])
    assert (timing.median, timing.repetitions) == (2.5, 4)
    assert timing.p10 < timing.median < timing.p90


@pytest.mark.parametrize(("ranks", "factor"), [(2, 1.0), (4, 1.5), (8, 1.75)])
def test_bandwidths(ranks, factor):
    assert measure.algorithm_bandwidth(100, 4.0) == 25.0
    assert measure.bus_bandwidth(100, 4.0, ranks) == pytest.approx(25.0 * factor)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.234, "1.23 s"),
        (0.99999, "1.00 s"),
        (0.0123, "12.3 ms"),
        (0.1234, "123 ms"),
        (4.56e-6, "4.56 us"),
        (6e-8, "0.060 us"),
    ],
)
def test_durations_have_a_unit_that_suits(seconds, text):
    assert measure.duration_text(seconds) == text


def test_wire_bound_of_25_mib_between_4_nodes():
    assert measure.wire_bound(25 * MIB, 4, 200e6) == pytest.approx(1.5 * 25 * MIB / 25e6)


@pytest.mark.parametrize(
    ("model", "tensors", "parameters"),
    [
        ("ResNet-50", 161, 25_557_032),
        ("BERT-base", 199, 109_482_240),
        ("MLP", 8, 785 * 4096 + 2 * 4097 * 4096 + 4097 * 10),
    ],
)
def test_models_have_their_published_sizes(model, tensors, parameters):
    found = shapes.MODELS[model]()
    assert len(found) == tensors
    assert sum(map(math.prod, found)) == parameters
    assert shapes.model_bytes(model) == 4 * parameters


@pytest.mark.parametrize("values", [cases.EXACT, cases.EXACT_IN_BFLOAT16])
def test_expected_sum_is_the_sum_of_what_the_ranks_put_in(values):
    inputs = [cases.input_values(rank, (3, 700), 5, values) for rank in range(4)]
    assert cases.wrong_elements(sum(inputs), 4, 5, values=values) == 0
    assert all(np.any(inputs[0] != other) for other in inputs[1:])
    assert cases.wrong_elements(sum(inputs) / 4, 4, 5, divisor=4, values=values) == 0


def test_wrong_elements_are_counted():
    result = cases.expected_sum(2, (5000,))
    result[[0, 17, 4999]] += 1
    assert cases.wrong_elements(result, 2) == 3
    assert cases.wrong_elements(cases.expected_sum(2, (5000,), 1), 2, 0) == 5000


def test_sums_over_8_ranks_are_exact_in_bfloat16():
    bits = cases.expected_sum(8, (1000,), values=cases.EXACT_IN_BFLOAT16).view(np.uint32)
    assert not np.any(bits & 0xFFFF)


def test_best_peer_is_the_fastest_and_never_we():
    found = findings.Findings(
        rows=[row("smddp_tf", median=0.1), row("Open MPI 5", median=0.7), row("gloo", median=0.9)]
    )
    found.rows.append(row("Horovod", "function", median=0.6))
    best = targets.best_peer(found, 64 * MIB, 2)
    assert best
    assert best.candidate == "Horovod"
    assert targets.best_peer(found, 64 * MIB, 4) is None


@pytest.mark.parametrize(("ours", "passed"), [(0.33, True), (0.34, False)])
def test_a_ratio_to_reach(ours, passed):
    found = findings.Findings(
        rows=[row("smddp_tf", median=ours), row("Open MPI 5", median=1.0), row("gloo", median=2.0)]
    )
    verdict = verdict_of(found, "NumPy 64 MiB, np 2: faster")
    assert verdict.measured == pytest.approx(1.0 / ours)
    assert verdict.passed is passed


@pytest.mark.parametrize(("ours", "passed"), [(1.3, True), (1.4, False)])
def test_a_ratio_to_stay_below(ours, passed):
    found = findings.Findings(rows=[row("smddp_tf", median=ours), row("reference", median=1.0)])
    assert verdict_of(found, "NumPy 64 MiB, np 2: time over the reference").passed is passed


def test_what_was_not_measured_is_neither_passed_nor_missed():
    verdicts = targets.verdicts(findings.Findings())
    assert {one.passed for one in verdicts} == {None}
    assert {one.measured for one in verdicts} == {None}


def test_every_target_needs_only_what_the_suites_measure():
    """Each case of the default run with one time for all: every target of node and lab must find its rows."""
    found = findings.Findings(cost={"idle_cpu": 0.001})
    for ranks in suites.FULL.ranks:
        for case in [*suites.array_cases(suites.FULL, ranks), *suites.tensorflow_cases(suites.FULL, ranks)]:
            doers = [one.name for one in peers.CANDIDATES.values() if case.door in one.doors]
            found.rows += [row(name, case.door, case.bytes, ranks, model=case.model) for name in doers]
    for setting in lab.TARGETS:
        for case, _ in lab.cases_for(setting, ours=True):
            ranks = setting.nodes * setting.per_node
            found.rows.append(row("smddp_tf", case.door, case.bytes, ranks, place=setting.place, sent=1.0))
    times = {"compute": 2.0, "communication": 1.0, "together": 2.1, "cores_need": 1.9}
    found.steps = [{"place": "lab 2x2 200", "model": "MLP", **times}]
    found.rows += [
        row(one.name, "step", 4 * parameters_of(model), ranks, place="training", model=model)
        for one in training.BY_NAME.values()
        for model in one.doors
        for ranks in (1, 2)
    ]
    of_a_model = {who: [1.0] for who in (targets.PLAIN, targets.OURS, targets.UNWRAPPED)}
    found.alone = {model: of_a_model for model in MODELS if model != FIVE_MS}
    jobs = [targets.of_nothing(ranks) for ranks in (2, targets.MANY)]
    starts = (targets.ONE_PROCESS, targets.TWO_PROCESSES, targets.TWO_RANKS, *jobs)
    found.launch = {name: [1.0] for name in starts}
    assert [one.what for one in targets.verdicts(found) if one.measured is None] == []


def test_lab_targets_compare_with_the_wire():
    bound = measure.wire_bound(25 * MIB, 4, 200e6)
    at = {"size": 25 * MIB, "ranks": 8, "place": "lab 4x2 200"}
    ours = row("smddp_tf", median=1.1 * bound, sent=1.5 * 25 * MIB * 1.01, **at)
    half = row("smddp_tf", "bfloat16", median=0.6 * bound, sent=1.0, **at)
    found = findings.Findings(rows=[ours, half])
    assert verdict_of(found, "lab 4x2, 200 Mbit/s, 25 MiB").measured == pytest.approx(1.1)
    assert verdict_of(found, "lab 4x2, 25 MiB: bytes").measured == pytest.approx(1.01)
    assert verdict_of(found, "lab 4x2, 25 MiB, bf16").passed is False


def test_results_files_are_read_back_and_joined(tmp_path):
    first = findings.Findings(when="one", rows=[row("smddp_tf")], cost={"idle_cpu": 0.5})
    second = findings.Findings(when="two", rows=[row("gloo", place="lab 4x2 200", sent=3.5)], notes=["a note"])
    for name, one in (("a", first), ("b", second)):
        findings.save(one, tmp_path / name)
    together = findings.load([tmp_path / "a", tmp_path / "b"])
    assert together == dataclasses.replace(first, when="one, two", rows=first.rows + second.rows, notes=["a note"])
    assert json.loads((tmp_path / "b").read_text())["rows"][0]["sent"] == 3.5


def test_tables_show_measured_values_beside_targets():
    found = findings.Findings(
        rows=[
            row("smddp_tf", median=0.002),
            row("Open MPI 5", median=0.011),
            row("smddp_tf", size=25 * MIB, ranks=8, place="lab 4x2 200", median=1.7, sent=4e7),
        ],
        steps=[
            {
                "place": "node",
                "model": "MLP",
                "compute": 0.2,
                "communication": 0.1,
                "together": 0.21,
                "hidden": 0.9,
                "cores_need": 0.18,
            },
        ],
        cost={"idle_cpu": 0.002, "memory": [{"bytes": 1, "resident_growth": MIB, "stats": {"arena_bytes": 8 * MIB}}]},
        notes=["gloo: not installed"],
    )
    text = io.StringIO()
    report.show(found, Console(file=text, width=200))
    lines = text.getvalue().splitlines()
    target = next(line for line in lines if "NumPy 64 MiB, np 2: faster" in line)
    assert ">= 3 x" in target
    assert "5.50 x" in target
    assert "pass" in target
    assert any("lab 4x2, 200 Mbit/s, 25 MiB: time over the bound" in line and "1.08 x" in line for line in lines)
    assert any("MLP" in line and "90 %" in line for line in lines)
    assert any("gloo: not installed" in line for line in lines)


def test_curves_are_sorted_by_size_and_leave_models_out():
    rows = [row("smddp_tf", size=size, median=size / 2e9) for size in (64 * MIB, 4, MIB)]
    found = plots.curves(findings.Findings(rows=[*rows, row("smddp_tf", model="MLP")]), "node", 2, "array")
    assert list(found) == ["smddp_tf"]
    assert found["smddp_tf"] == [(size, pytest.approx(2e9)) for size in (4, MIB, 64 * MIB)]


def test_sent_bytes_of_a_device_that_is_not_there():
    assert lab_worker.sent_bytes("no-such-device") == 0


def test_lab_says_why_it_cannot_be(tmp_path):
    missing = tmp_path / "lab.sh"
    assert str(missing) in lab.why_not(missing)


def test_the_fraction_hidden():
    steps = pytest.importorskip("benchmarks.steps")
    assert steps.fraction_hidden(2.0, 1.0, 2.0) == 1.0
    assert steps.fraction_hidden(2.0, 1.0, 3.0) == 0.0
    of_ranks = [
        {
            "model": "MLP",
            "batch": 8,
            "gradient_bytes": 4,
            "seconds": {"compute": [a], "communication": [1], "together": [b]},
            "busy": {"compute": [3.0], "communication": [0.5]},
        }
        for a, b in ((2.0, 2.5), (1.5, 2.2))
    ]
    found = steps.summary("node", 2, of_ranks)
    assert (found["compute"], found["together"], found["hidden"]) == (2.0, 2.5, 0.5)
    assert found["cores_need"] == 3.5 / len(os.sched_getaffinity(0))


def test_communication_of_a_step_is_what_it_takes_more_than_alone():
    at = {"size": shapes.model_bytes("ResNet-50"), "ranks": 2, "model": "ResNet-50"}
    of = {"smddp_tf": (0.020, 0.045), "Horovod": (0.030, 0.150)}  # alone, with the other rank
    rows = [row(who, door, median=one, **at) for who, both in of.items() for door, one in zip(("alone", "tape"), both)]
    verdict = verdict_of(findings.Findings(rows=rows), "ResNet-50 step, tape, np 2")
    assert verdict.measured == pytest.approx(120 / 25)
    assert (verdict.passed, verdict.detail) == (True, "25.0 ms, Horovod 120 ms")
