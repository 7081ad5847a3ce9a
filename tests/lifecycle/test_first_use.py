"""Functions that are called when a program begins to use something."""

from __future__ import annotations

import pytest

from smddp_tf.lifecycle import first_use


def test_all_steps_are_called_in_their_order_by_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "_steps", {})
    called: list[str] = []
    first_use.at_use(lambda: called.append("first"))
    first_use.at_use(lambda: called.append("reducing"), of=first_use.REDUCING)
    first_use.at_use(lambda: called.append("second"))
    assert called == []
    first_use.begin()
    first_use.begin()
    assert called == ["first", "second"] * 2
    first_use.begin(first_use.REDUCING)
    assert called == ["first", "second"] * 2 + ["reducing"]
