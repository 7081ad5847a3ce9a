"""Ray Train's configuration, on a stand-in for Ray; with Ray: tests/starters."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

import pytest

from smddp_tf.ray import executor

NAME = "smddp_tf.ray.train"


def test_without_ray_train(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="ray"):
        importlib.import_module(NAME)


def test_workers_become_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    backend: Any = ModuleType("ray.train.backend")
    backend.Backend = type("Backend", (), {})
    backend.BackendConfig = type("BackendConfig", (), {})
    for name in ("ray", "ray.train"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "ray.train.backend", backend)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    begun = {}

    class Workers:
        def execute(self, function: Any) -> list[Any]:
            assert function is executor.place
            return [("h1", 401, "secret of 0", []), ("h1", 402, "secret of 1", []), ("h2", 403, "secret of 2", [])]

        def execute_single(self, rank: int, function: Any, variables: dict[str, str]) -> None:
            assert function is executor.begin
            begun[rank] = variables

    config = importlib.import_module(NAME).SmddpConfig()
    started = config.backend_cls()
    started.on_start(Workers(), config)
    assert started.share_cuda_visible_devices
    names = ("SMDDP_RANK", "SMDDP_COORDINATOR", "SMDDP_SECRET", "LOCAL_RANK")
    assert [[begun[rank][name] for name in names] for rank in range(3)] == [
        ["0", "h1:401", "secret of 0", "0"], ["1", "h1:401", "secret of 0", "1"], ["2", "h1:401", "secret of 0", "0"]
    ]  # fmt: skip
    monkeypatch.delitem(sys.modules, NAME)
