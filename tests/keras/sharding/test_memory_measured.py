"""What `hvd.memory` says is what training steps take: resident memory of ranks that have nothing else to do.

In processes of their own, whose C library gives freed tensors back at once; see benchmarks/memory.py.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.memory import ALLOCATORS
from tests.support.mpirun import launch
from tests.variants import FULL, full

pytestmark = pytest.mark.launches

LIMIT = 0.1


def measured(folder: Path, ranks: int, shard: int, *more: str) -> list[dict[str, int]]:
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        pytest.skip("this kernel does not let a process forget how much memory it had")
    words = ["-m", "benchmarks.memory", "--folder", folder, "--shard", str(shard), "--optimizers", "AdamW", *more]
    words += [] if FULL else ["--width", "1536"]  # 57 million weights instead of 101
    launch(words, ranks, timeout=400, env={"MALLOC_MMAP_THRESHOLD_": ALLOCATORS["alive"]}).check()
    return [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]


@full
def test_whole_state(tmp_path: Path) -> None:
    (answer,) = measured(tmp_path, 1, 1)
    assert abs(answer["measured"] / answer["predicted"] - 1) < LIMIT, answer


def test_shared_state(tmp_path: Path) -> None:
    """The total is the most, but for temporaries of the updates, of which each variable's part may have one."""
    for answer in measured(tmp_path, 2, 2):
        most = (1 + LIMIT / 2) * (answer["predicted"] + answer["parts"])
        assert answer["state"] < answer["measured"] < most, answer


def test_weights_in_parts(tmp_path: Path) -> None:
    """As above; full weights and gradients are few at a time."""
    for answer in measured(tmp_path, 2, 2, "--weights"):
        assert answer["state"] < answer["measured"] < (1 + LIMIT) * answer["predicted"], answer
