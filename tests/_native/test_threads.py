"""Which Python threads may reduce (smddp_tf/_native/threads.py)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from smddp_tf._native import threads


def label_beside(name: str | None, other_name: str | None) -> str:
    """The label of a thread of one name while another lives that does not reduce."""
    over = threading.Event()
    other = threading.Thread(target=over.wait, args=(30,), name=other_name)
    other.start()
    found: list[str | Exception] = []

    def ask() -> None:
        try:
            found.append(threads.label())
        except ValueError as error:
            found.append(error)

    asking = threading.Thread(target=ask, name=name)
    asking.start()
    asking.join()
    over.set()
    other.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


def test_the_main_thread_has_none() -> None:
    assert threads.label() == ""


def test_a_label_is_the_name_without_numbers_whatever_else_lives() -> None:
    assert label_beside("actor-3 of rank 1", "critic") == "actor-# of rank #"
    assert label_beside("actor-4 of rank 0", None) == "actor-# of rank #"
    with ThreadPoolExecutor(1, "pool") as pool:
        assert pool.submit(threads.label).result() == "pool_#"


def test_unnamed_threads_are_refused_before_they_meet() -> None:
    with pytest.raises(ValueError, match="need names"):
        label_beside("Thread-7 (train)", "Thread-8 (train)")


def test_a_thread_that_lived_beside_one_of_its_name_is_refused() -> None:
    with ThreadPoolExecutor(2, "two") as pool:
        meet = threading.Barrier(2)
        assert [each.result(30) for each in [pool.submit(meet.wait) for _ in range(2)]] != []
        turns = [pool.submit(lambda: (meet.wait(30), threads.label())) for _ in range(2)]
        assert any(isinstance(turn.exception(30), ValueError) for turn in turns)
