"""Whether another library's imports find this package."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from smddp_tf.lifecycle.aliased import is_aliased


def test_only_the_libraries_of_a_finder_are_aliased(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [object(), SimpleNamespace(aliased=("horovod",))])
    assert is_aliased("horovod")
    assert not is_aliased("smdistributed")
    monkeypatch.setattr(sys, "meta_path", [object()])
    assert not is_aliased("horovod")
