"""Which pictures a report has, and that they show what was recorded."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from smddp_tf.insight import pictures
from smddp_tf.insight.recording import load
from tests.insight.written_recording import WrittenRecording


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    job = WrittenRecording(hosts=2, local=1, gpus=1)
    return pictures.pictures(load(job.write(tmp_path_factory.mktemp("recording"))))


def test_each_picture_names_what_it_shows(drawn: dict[str, str]) -> None:
    assert list(drawn) == ["Steps", "Ranks", "Hosts"]
    assert all(picture.startswith("<svg") for picture in drawn.values())
    for words in ("computation", "waiting for input", "waiting for gradients", "longest step", "ms a step"):
        assert f">{words}<" in drawn["Steps"], words
    for words in ("0 on node-0", "1 on node-1", "own time: computation and input"):
        assert f">{words}<" in drawn["Ranks"], words
    assert re.findall(r">(node-\d|GPU \d)<", drawn["Hosts"]) == ["node-0", "GPU 0", "node-1", "GPU 0"]


def test_what_was_not_recorded_has_no_picture(tmp_path: Path) -> None:
    folder = WrittenRecording(hosts=1, local=1).write(tmp_path)
    for file in folder.iterdir():
        if "host" in file.name or "node" in file.name:
            file.unlink()
    assert "Hosts" not in pictures.pictures(load(folder))


def test_points_are_medians_of_equal_parts() -> None:
    rows = np.stack([np.arange(480.0), np.arange(480.0)[::-1] ** 2])
    points = pictures._points(rows)
    assert points.shape == (2, 240)
    assert points[0, :3].tolist() == [0.5, 2.5, 4.5]
    assert points[1, -1] == 0.5
    np.testing.assert_array_equal(pictures._points(rows, np.max)[0, :3], [1, 3, 5])
    np.testing.assert_array_equal(pictures._points(rows[:, :7]), rows[:, :7])  # fewer than points
