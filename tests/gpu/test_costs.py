"""What a gradient costs on the framework's thread: how often it makes the engine ask CUDA for something."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fake_gpu

ROOT = Path(__file__).resolve().parents[2]
TENSORS, STEPS = 6, 30  # of the script


@pytest.fixture(scope="module")
def counts() -> dict[str, dict[str, int]]:
    """How often the GPU was asked for what: in init, and by the reductions."""
    environment = {
        **os.environ,
        "SMDDP_GPU_LIBRARY": str(fake_gpu.build()),
        "SMDDP_LOG_LEVEL": "info",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, Path(__file__).parent / "scripts" / "gpu_costs.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    seen = {when: said for line in done.stdout.splitlines() for when, said in json.loads(line).items()}
    steps = {what: number - seen["before"][what] for what, number in seen["after"].items()}
    return {"init": seen["after init"], "steps": steps}


def test_init_does_not_ask_for_gpus_even_when_it_logs(counts):
    """The program may choose its GPU after init (CUDA_VISIBLE_DEVICES)."""
    assert counts["init"] == dict.fromkeys(counts["init"], 0)


def test_a_stream_is_asked_once_which_device_it_is_on(counts):
    assert counts["steps"]["device_of"] == 1
    assert counts["steps"]["open"] <= 1  # on CUDA none: the script has opened it


def test_devices_are_counted_at_most_once(counts):
    assert counts["steps"]["count"] <= 1


def test_events_are_used_again(counts):
    """A tensor's mark takes an event that one of an earlier step has given back."""
    assert counts["steps"]["record"] >= STEPS * TENSORS
    assert counts["steps"]["event"] <= 3 * TENSORS
