"""A rank of `smddp_tf.run.run(func)`: gets the function from the launcher, calls it, sends back what it returns."""

from __future__ import annotations

import os
import sys
import traceback

import cloudpickle

from smddp_tf.exceptions import LaunchError
from smddp_tf.lifecycle.placement import find_placement
from smddp_tf.link.channel import ADDRESS, KEY, Kind
from smddp_tf.rendezvous.rounds import in_rounds
from smddp_tf.run.rank.launcher import connect_to_launcher

_PAYLOAD_SECONDS = 120.0


def main() -> None:
    client = connect_to_launcher()
    if not in_rounds(os.environ):  # which `hvd.init` asks the launcher for
        for name in (ADDRESS, KEY):  # not for what the function starts
            del os.environ[name]
    placement = find_placement(os.environ)
    assert placement is not None
    client.send(Kind.TASK, str(placement.rank).encode())
    payload = client.receive(_PAYLOAD_SECONDS)
    try:
        answer, failed = b"+" + sendable(call(payload)), None
    except (Exception, SystemExit) as error:
        answer, failed = b"-" + _pickled(error), error
    client.send(Kind.RESULT, answer)
    client.close()
    if failed is not None:
        sys.excepthook(type(failed), failed, failed.__traceback__)
        sys.exit(1)


def call(payload: bytes) -> object:
    """Calls the function of a payload of `run`."""
    path, pickled = cloudpickle.loads(payload)
    sys.path[:] = [*path, *(folder for folder in sys.path if folder not in path)]  # as where the function was written
    function, args, kwargs = cloudpickle.loads(pickled)
    try:
        return function(*args, **kwargs)
    except SystemExit as error:
        if error.code in (None, 0):
            return None
        raise


def sendable(result: object) -> bytes:
    """Pickles what a function has returned; raises LaunchError where that is not possible."""
    try:
        return bytes(cloudpickle.dumps(result))
    except Exception as error:
        raise LaunchError(
            f"What the function has returned cannot be sent back: {type(error).__name__}: {error}."
        ) from error


def _pickled(error: BaseException) -> bytes:
    """The exception, or a description of one that other processes cannot unpickle; and its traceback as text."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        pickled: bytes = cloudpickle.dumps((error, text))
        cloudpickle.loads(pickled)
        return pickled
    except Exception:
        return bytes(cloudpickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text)))


if __name__ == "__main__":
    main()
