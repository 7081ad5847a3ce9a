"""A rank of `smddp_tf.run.run(func)`: gets the function from the launcher, calls it, sends back what it returns."""

from __future__ import annotations

import os
import sys
import traceback

import cloudpickle

from smddp_tf.run.channel import RESULT, TASK, Caller
from smddp_tf.run.placement import find_placement

__all__ = ["main"]

_PAYLOAD_SECONDS = 120.0


def main() -> None:
    caller = Caller()
    placement = find_placement(os.environ)
    assert placement is not None
    caller.send(TASK, str(placement.rank).encode())
    answer = _answer(caller.receive(_PAYLOAD_SECONDS))
    caller.send(RESULT, answer)
    caller.close()
    sys.exit(0 if answer[:1] == b"+" else 1)


def _answer(payload: bytes) -> bytes:
    """`+` and the pickled result, or `-` and the pickled (exception, its traceback as text)."""
    try:
        path, pickled = cloudpickle.loads(payload)
        sys.path += [folder for folder in path if folder not in sys.path]
        function, args, kwargs = cloudpickle.loads(pickled)
        return b"+" + cloudpickle.dumps(function(*args, **kwargs))
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return b"+" + cloudpickle.dumps(None)
        text = traceback.format_exc()
        print(text, file=sys.stderr, end="", flush=True)
        try:
            pickled = cloudpickle.dumps((error.with_traceback(None), text))
            cloudpickle.loads(pickled)
            return b"-" + pickled
        except Exception:
            return b"-" + cloudpickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))


if __name__ == "__main__":
    main()
