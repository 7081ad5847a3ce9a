"""The profiler's switch of SMDDP."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from smddp_tf import sdp

pytestmark = pytest.mark.ranks("1", "2")


def test_profiler(hvd, rank, tmp_path):
    from smddp_tf.sdp import profiler

    path = hvd.broadcast_object(str(tmp_path / "trace.json"))
    profiler.start_profiler(path, append_rank=True)
    sdp.oob_allreduce(tf.constant(1.0))
    profiler.stop_profiler()
    if rank == 0:
        events = json.loads(Path(f"{path}.rank0").read_text())
        assert "allreduce" in json.dumps(events).lower()
    hvd.barrier()
