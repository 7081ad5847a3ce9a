"""What runs on a thread: changed inside of a context, and on no other thread."""

from __future__ import annotations

import contextlib
import threading

import pytest

from smddp_tf.keras.roles import running


def test_changes_end_with_their_context_in_any_order_of_nesting() -> None:
    with running.within(active="outer", is_alone=True):
        with running.within(active="inner"):
            assert (running.here.active, running.here.is_alone) == ("inner", True)
        assert running.here.active == "outer"
    assert (running.here.active, running.here.is_alone, running.here.plans) == (None, False, ())


def test_an_error_ends_them_too() -> None:
    with contextlib.suppress(KeyError), running.within(batch=1):
        raise KeyError
    assert running.here.batch is None


def test_other_threads_see_nothing_of_it() -> None:
    seen = []
    with running.within(is_compiled_loss=True):
        thread = threading.Thread(target=lambda: seen.append(running.here.is_compiled_loss))
        thread.start()
        thread.join(10)
    assert seen == [False]


def test_a_name_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(AttributeError, match="activ"), running.within(activ=1):
        pass
