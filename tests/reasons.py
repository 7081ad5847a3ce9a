"""Errors of the engine are known by their reason; the sentence of each is asserted in one test file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from smddp_tf.exceptions import reason_of

BEFORE_INIT = "Horovod has not been initialized; use hvd.init()."  # Horovod's words: scripts look for them


@contextmanager
def raises(kind: type[Exception], reason: str, match: str = "") -> Iterator[None]:
    """As `pytest.raises`, for an error of the engine that has this reason."""
    with pytest.raises(kind, match=match) as caught:
        yield
    assert reason_of(caught.value) == reason, caught.value
