"""The pure functions of the scaling benchmark."""

from __future__ import annotations

import math

import pytest

from benchmarks import scaling, shapes
from benchmarks.measure import Timing
from benchmarks.scaling import MODELS, Model, Row, schedule_bound, verdicts


def row(hosts, candidate, step, communication=1.0, wire=1.0):
    return Row("m", hosts, candidate, 2.0, Timing(step, step, step, 3), communication, wire, 2.0, 0)


def test_models_have_their_published_sizes():
    weights = {name: sum(map(math.prod, model.gradients)) for name, model in MODELS.items()}
    assert weights == {"ResNet-50": 25_557_032, "BERT-large": 335_141_888, "MLP of 7 layers": 22_609_930}
    assert sum(shapes.resnet50_work()) == pytest.approx(3.86e9, rel=0.01)  # multiplications of one image
    for model in MODELS.values():
        assert len(model.work) == len(model.gradients) == len(model.elements)


@pytest.mark.parametrize("name", MODELS)
def test_the_lab_keeps_the_ratio_of_communication_to_computation(name):
    model = MODELS[name]
    real = 4 * sum(map(math.prod, model.gradients)) * 8 / scaling.REAL_RATE / model.compute
    in_lab = 4 * sum(model.elements) * 8 / scaling.LAB_RATE / model.lab_seconds
    assert in_lab == pytest.approx(real, rel=1e-3)


def test_gradients_are_there_in_the_reverse_order_of_the_layers():
    model = Model([(4,), (8,), (8,)], [2.0, 1.0, 1.0], compute=0.3, smaller=1)
    seconds = model.lab_seconds
    assert seconds == pytest.approx(0.3 * 125)
    assert model.ready == pytest.approx([seconds, 2 / 3 * seconds, 1 / 2 * seconds])


@pytest.mark.parametrize(
    ("ready", "seconds", "end"),
    [
        ([1.0, 2.0, 3.0], [0.5, 0.5, 0.5], 3.5),  # each waits for its moment
        ([3.0, 2.0, 1.0], [0.5, 0.5, 2.5], 4.5),  # the link is busy from 1.0 on
        ([1.0], [0.1], 3.0),  # the computation ends last
    ],
)
def test_the_least_seconds_of_a_step(ready, seconds, end):
    assert schedule_bound(ready, seconds, compute=3.0) == pytest.approx(end)


def test_speedup_and_hidden_share():
    one = row(4, "smddp_tf", 2.5)
    assert one.speedup == pytest.approx(4 * 2.0 / 2.5)
    assert one.hidden == pytest.approx(0.5)
    assert math.isnan(row(1, "smddp_tf", 2.0).hidden)


def test_a_compiled_step_has_a_goal_of_its_own():
    rows = [row(4, "smddp_tf", 2.0), row(4, scaling.COMPILED, 2.5), row(1, scaling.COMPILED, 2.0)]
    found = {goal: (value, passed) for goal, value, passed in verdicts(rows) if "compiled" in goal}
    assert found == {"m, 4 hosts, compiled: hidden >= 0.6": (pytest.approx(0.5), False)}
    assert not any("Horovod" in goal for goal, _, _ in verdicts(rows))  # it is not one of the others


def test_goals_compare_with_the_bounds_and_the_best_of_horovod():
    rows = [row(4, "smddp_tf", 2.5), row(4, "Horovod", 4.0), row(4, "Horovod, btl_tcp_flags 1", 2.75)]
    found = {goal: (value, passed) for goal, value, passed in verdicts(rows)}
    assert found == {
        "m, 4 hosts: speed-up over min(hosts, wire) >= 0.9": (pytest.approx(0.8), False),
        "m, 4 hosts: step over its longer part <= 1.1": (pytest.approx(1.25), False),
        "m, 4 hosts: throughput over Horovod's best >= 1.2": (pytest.approx(1.1), False),
    }
    wire_bound_step = [row(4, "smddp_tf", 4.2, communication=4.1, wire=4.0)]
    assert [passed for _, _, passed in verdicts(wire_bound_step)] == [True, True]
