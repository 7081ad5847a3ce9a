"""`horovod.runner.common.util.env`: a process's rank by its launcher's variables."""

from __future__ import annotations

import pytest

from smddp_tf.compat.horovod import runner_env


def test_the_rank_is_the_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_env.os, "environ", {})
    assert runner_env.get_env_rank_and_size() == (0, 1)
    monkeypatch.setattr(runner_env.os, "environ", {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "5"})
    assert runner_env.get_env_rank_and_size() == (3, 5)
