"""The exceptions that scripts for Horovod catch, and states without TensorFlow."""

from __future__ import annotations

import importlib

import pytest

from smddp_tf import elastic, exceptions


def test_what_they_are() -> None:
    assert issubclass(exceptions.HorovodInternalError, RuntimeError)
    assert issubclass(exceptions.HostsUpdatedInterrupt, RuntimeError)
    assert not exceptions.HostsUpdatedInterrupt().skip_sync
    assert exceptions.HostsUpdatedInterrupt(skip_sync=True).skip_sync
    error = exceptions.HorovodVersionMismatchError("tensorflow", "2.21.0", "2.16.1")
    assert isinstance(error, ImportError)
    assert (error.name, error.version, error.installed_version) == ("tensorflow", "2.21.0", "2.16.1")
    assert str(error) == exceptions.get_version_mismatch_message("tensorflow", "2.21.0", "2.16.1")
    assert "version 2.21.0" in str(error)
    assert "version 2.16.1" in str(error)


def test_states_of_ones_own() -> None:
    """`run_fn` with a reset of one's own; what was assigned and not saved goes back."""
    events = []

    class Noted(elastic.ObjectState):
        def reset(self):
            events.append("state.reset")

    def work(state, limit):
        events.append(("work", state.done))
        state.done += 1
        if state.done < limit:
            state.save()
            state.done += 100
            raise exceptions.HorovodInternalError("lost")
        return state.done

    state = Noted(bcast_object=lambda obj: obj, get_rank=lambda: 0, done=0)
    state.register_reset_callbacks([lambda: events.append("callback")])
    assert elastic.run_fn(work, lambda: events.append("reset"))(state, limit=3) == 3
    between = ["reset", "state.reset", "callback"]
    assert events == [("work", 0), *between, ("work", 1), *between, ("work", 2)]


@pytest.mark.parametrize("name", ["", ".keras", ".keras.callbacks", ".elastic", ".data", ".sdp"])
def test_dir_holds_what_programs_use(name: str) -> None:
    """And no modules of the package's inside, nor what they import."""
    module = importlib.import_module(f"smddp_tf{name}")
    listed = dir(module)
    assert set(module.__all__) <= set(listed)
    assert not {"Any", "TYPE_CHECKING", "annotations", "basics", "patches", "lifecycle", "rank_zero"} & set(listed)
    for each in listed:
        assert hasattr(module, each), each
