"""Functions that are called when a program first uses this library."""

from __future__ import annotations

import pytest

from smddp_tf.lifecycle import first_use


def test_all_steps_are_called_in_their_order_by_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "_steps", [])
    called: list[str] = []
    first_use.at_use(lambda: called.append("first"))
    first_use.at_use(lambda: called.append("second"))
    assert called == []
    first_use.begin()
    first_use.begin()
    assert called == ["first", "second"] * 2
