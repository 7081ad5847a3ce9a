"""When `elastic.run` begins again after the loss of a session, and when it gives up. Without ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from smddp_tf.elastic import running
from smddp_tf.exceptions import HorovodInternalError


class State:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name not in ("sync", "restore", "on_reset"):
            raise AttributeError(name)
        return lambda: self.calls.append(name)


def lose(times: int) -> Any:
    """Raises the error of a lost rank that often."""
    left = iter(range(times))

    def raises() -> None:
        if next(left, None) is not None:
            raise HorovodInternalError("Rank 1 has died [smddp:peer_lost]")

    return raises


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Any:
    core = SimpleNamespace(
        is_initialized=lambda: False,
        session_failure=lambda: None,
        raised_elsewhere=lambda: "",
    )
    monkeypatch.setattr(running.loader, "core", lambda: core)
    monkeypatch.setattr(running.basics, "is_initialized", lambda: False)
    monkeypatch.setenv("SMDDP_RUN_NUMBER", "1")  # the job goes on without ranks that it loses
    return core


def train(reset: Any) -> tuple[str, list[str]]:
    state, trouble = State(), lose(1)
    return running.run_fn(lambda _: trouble() or "done", reset)(state), state.calls


def test_a_rank_that_is_lost_while_a_session_begins(job: Any) -> None:
    done, calls = train(lose(2))
    assert done == "done"
    assert calls == ["sync", "restore", "restore", "restore", "on_reset", "sync"]


def test_it_is_an_error_where_the_job_does_not_go_on(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SMDDP_RUN_NUMBER")
    with pytest.raises(HorovodInternalError, match="Rank 1 has died"):
        train(lose(1))


def test_sessions_that_never_begin_end_in_an_error(job: Any) -> None:
    with pytest.raises(HorovodInternalError, match="Rank 1 has died"):
        train(lose(1000))


@pytest.mark.parametrize("survives", [True, False])
def test_a_lost_rank_without_a_session(job: Any, monkeypatch: pytest.MonkeyPatch, survives: bool) -> None:
    if not survives:
        monkeypatch.delenv("SMDDP_RUN_NUMBER")
    assert running.is_lost_session(RuntimeError("it has died [smddp:peer_lost]")) is survives


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Rank 1 has died. [smddp:peer_lost]", "Rank 1 has died."),
        (
            "{{function_node __wrapped__SmddpAllreduce}} Rank 1 has died. [smddp:peer_lost] [Op:X]",
            "Rank 1 has died. [Op:X]",
        ),
        (
            "Graph execution error:\n\nDetected at node X\nRank 1 has died. [smddp:peer_lost]\n\t [[{{X}}]]",
            "Rank 1 has died.",
        ),
        ("a transport\nhas failed", "a transport"),
        ("", ""),
    ],
)
def test_why_it_goes_back_is_one_line(job: Any, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    left = [HorovodInternalError(text)]

    def once(_: State) -> None:
        if left:
            raise left.pop()

    running.run_fn(once, lambda: None)(State())
    assert capsys.readouterr().err == f"smddp_tf.elastic: back to the last commit, after HorovodInternalError: {said}\n"
