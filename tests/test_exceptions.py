"""The exceptions that scripts for Horovod catch, and states without TensorFlow."""

from __future__ import annotations

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
