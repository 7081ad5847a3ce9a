"""Scripts of Horovod and SMDDP users run unchanged: each one of examples/migrate, on two ranks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.mpirun import ROOT, SCIENCE, launch

pytestmark = pytest.mark.launches

SCRIPTS = sorted((ROOT / "examples" / "migrate").glob("*_*.py"))
SHORT = {"fit": ["--epochs", "5"], "keras": ["--epochs", "4"], "loop": ["--steps", "240"]}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script(script: Path) -> None:
    family = "horovod" if script.stem.startswith("horovod") else "smdistributed"
    text = script.read_text(encoding="utf-8")
    assert "smddp_tf" not in text
    arguments = ["-m", "smddp_tf.aliases", family, script, *SHORT.get(script.stem.rpartition("_")[2], [])]
    output = launch(arguments, 2, timeout=240, env=SCIENCE).check().output
    accuracy = re.search(r"Test accuracy: ([\d.]+)", output)
    assert accuracy, output
    assert float(accuracy.group(1)) > 0.75, output
    held = dict(re.findall(r"rank (\d) of 2 holds ([\d.]+)", output))
    assert set(held) == {"0", "1"}, output
    assert held["0"] == held["1"], output
    if "elastic" in script.stem:
        assert "lost a worker: True, trained 4 epochs" in output
        assert "do not train the same model" not in output  # the first `fit` comes before `state.sync`
    if "standalone" in script.stem:
        assert "resumed from epoch 2" in output
