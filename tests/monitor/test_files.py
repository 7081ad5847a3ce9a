"""The files of a recording, where the time of a step goes, and what psutil says: no ranks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smddp_tf.monitor import files, lines, samples, steps
from tests.recordings import lines_of


def test_the_names_need_neither_psutil_nor_native_code() -> None:
    code = (
        "import sys, smddp_tf.monitor.files; "
        "sys.exit(any(name in sys.modules for name in ('psutil', 'tensorflow', 'smddp_tf._core')))"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_a_host_name_becomes_a_file_name() -> None:
    assert files.host_file(Path("/r"), "node 1/a_b.example-2") == Path("/r/host-node_1_a_b.example-2.jsonl")


def test_files_are_bounded_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is the end, without a gap; a file that is there already is continued."""
    monkeypatch.setattr(lines, "MAX_BYTES", 2000)
    path = tmp_path / "a.jsonl"
    for start in (0, 300):
        writer = lines.Lines(path)
        for number in range(start, start + 300, 3):
            writer.write([{"number": number + place} for place in range(3)])
        writer.write([])
        writer.close()
    found = [line["number"] for line in lines_of(path)]
    assert found == list(range(found[0], 600))
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 4000
    assert {file.name for file in tmp_path.iterdir()} == {"a.jsonl", "a.jsonl.1"}


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    writer = lines.Lines(tmp_path / "missing" / "a.jsonl")
    with pytest.raises(FileNotFoundError):
        writer.write([{"a": 1}])


def test_no_link_is_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("of somebody else")
    (tmp_path / "a.jsonl").symlink_to(other)
    (tmp_path / "b.part").symlink_to(other)
    with pytest.raises(OSError, match="symbolic links"):
        lines.Lines(tmp_path / "a.jsonl").write([{"a": 1}])
    with pytest.raises(OSError, match="symbolic links"):
        lines.replace(tmp_path / "b.json", {"a": 1})
    assert other.read_text() == "of somebody else"


def test_the_time_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two steps belongs to the later one, after a pause to none; the engine's counters are differences."""
    counters = iter([(10, 5), (2_000_000_010, 500_000_005), (3_000_000_010, 500_000_005), (7, 3), (8, 3)])
    monkeypatch.setattr(steps, "_counters", lambda: next(counters))
    found: list[files.Step] = []
    times = steps.StepTimes(found.append)
    assert times.begin() == 0.0
    time.sleep(0.02)
    times.end(0.01, 5, 0)
    time.sleep(0.03)
    assert times.begin() >= 0.03
    times.end(0.03, 4, 0, steps=3, per_call=4)
    times.pause()
    time.sleep(0.05)
    assert times.begin() == 0.0
    times.end(0.0, None, 1)
    assert [step["samples"] for step in found] == [5, 2, 1, 1, None]
    assert [step["epoch"] for step in found] == [0, 0, 0, 0, 1]
    assert found[0]["seconds"] >= 0.02
    assert found[1]["seconds"] == pytest.approx(found[3]["seconds"])
    assert 3 * found[1]["seconds"] >= 0.03
    assert found[4]["seconds"] < 0.05
    assert (found[0]["reducing"], found[0]["exposed"]) == (2.0, 0.5)
    assert (3 * found[1]["reducing"], found[1]["exposed"]) == (1.0, 0.0)
    assert times.sums[:2] == [5, 9]
    assert times.sums[2] == pytest.approx(sum(step["seconds"] for step in found))


def test_steps_that_are_noted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has its own length, and a part of the rest by that."""
    counters = iter([(0, 0), (800_000_000, 400_000_000)])
    monkeypatch.setattr(steps, "_counters", lambda: next(counters))
    found: list[files.Step] = []
    times = steps.StepTimes(found.append)
    times.begin()
    began = time.perf_counter()
    time.sleep(0.08)
    now = time.perf_counter()
    times.end(0.04, 8, 2, steps=3, marks=[began + 0.01, began + 0.07])
    assert [step["seconds"] for step in found] == pytest.approx([0.01, 0.06, now - began - 0.07], abs=0.005)
    assert found[1]["time"] - found[0]["time"] == pytest.approx(0.06, abs=1e-3)
    for step in found:
        assert step["input"] / step["seconds"] == pytest.approx(0.04 / sum(each["seconds"] for each in found))
        assert step["reducing"] == pytest.approx(2 * step["exposed"])
    assert sum(step["exposed"] for step in found) == pytest.approx(0.4)
    assert [step["samples"] for step in found] == [3, 3, 2]


def test_calls_of_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven steps in calls of three; then six and a call that has found the end of the data."""
    monkeypatch.setattr(steps, "_counters", lambda: (0, 0))
    for count, lengths in (7, [0.01] * 3 + [0.02] * 3 + [0.03]), (6, [0.01] * 3 + [0.02] * 3):
        found: list[files.Step] = []
        times = steps.StepTimes(found.append)
        times.begin()
        began = time.perf_counter()
        time.sleep(0.12)
        times.end(0.06, count, 0, steps=count, marks=[began + 0.03, began + 0.09], per_call=3)
        assert [step["seconds"] for step in found] == pytest.approx(lengths, abs=0.01)
        assert times.sums[:2] == [count, count]


def test_another_session_counts_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = iter([(50, 40), (7, 3)])
    monkeypatch.setattr(steps, "_counters", lambda: next(counters))
    found: list[files.Step] = []
    times = steps.StepTimes(found.append)
    times.begin()
    times.end(0.0, 1, 0)
    assert (found[0]["reducing"], found[0]["exposed"]) == (0.0, 0.0)


def test_what_a_process_uses(tmp_path: Path) -> None:
    """A child that computes, a file that is read, memory that is held."""
    file = tmp_path / "data"
    file.write_bytes(b"x" * 3_000_000)
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        sampler = samples.ProcessSampler()
        first, began = sampler.sample(), time.monotonic()
        held = bytearray(os.urandom(1 << 20) * 40)
        file.read_bytes()
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        share = 100 * 0.3 / (time.monotonic() - began)  # little where others compute too
        found = [sampler.sample() for _ in range(samples._CHILDREN_EVERY)]
    finally:
        child.kill()
        child.wait(10)
    assert first["children"] == 1
    assert found[0]["cpu"] > 0.8 * share
    assert found[-1]["children_cpu"] > 0.2 * share
    assert found[0]["memory"] - first["memory"] > 0.9 * len(held)
    assert 3_000_000 <= found[0]["read_bytes"] - first["read_bytes"] < 6_000_000
    assert first["threads"] >= 1
    assert set(first) == set(files.ProcessSample.__annotations__)


def test_what_a_host_uses(tmp_path: Path) -> None:
    sampler = samples.HostSampler()
    with (tmp_path / "data").open("wb") as file:
        file.write(b"x" * 8_000_000)
        os.fsync(file.fileno())
    until = time.process_time() + 0.3
    while time.process_time() < until:
        pass
    found = sampler.sample()
    assert set(found) == set(files.HostSample.__annotations__)
    assert len(found["cpu"]) == os.cpu_count()
    assert sum(found["cpu"]) > 20
    assert found["runnable"] >= 1
    assert 0 < found["memory"] < found["memory_total"]
    assert len(found["gpu"]) == len(found["gpu_memory"])
    assert min(found["disk_read"], found["disk_written"], found["sent"], found["received"]) >= 0


def test_gpus_as_the_driver_says_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU here: a module in the place of nvidia-ml-py, with its names."""

    class Found:
        gpu, used, total = 75, 30, 40

    class Nvml:
        nvmlInit = staticmethod(lambda: None)
        nvmlDeviceGetCount = staticmethod(lambda: 2)
        nvmlDeviceGetHandleByIndex = staticmethod(lambda number: number)
        nvmlDeviceGetName = staticmethod(lambda handle: f"GPU {handle}")
        nvmlDeviceGetUtilizationRates = nvmlDeviceGetMemoryInfo = staticmethod(lambda handle: Found)

    monkeypatch.setitem(sys.modules, "pynvml", Nvml)
    gpus = samples.Gpus()
    assert gpus.names() == ["GPU 0", "GPU 1"]
    assert gpus.uses() == [75.0, 75.0]
    assert gpus.memories() == [75.0, 75.0]
