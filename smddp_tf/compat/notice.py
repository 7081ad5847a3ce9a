"""The warning that an older form was used: once in a process, on rank 0."""

from __future__ import annotations

from smddp_tf import basics
from smddp_tf._warn import warn

_said: set[str] = set()


def once(old: str, modern: str) -> None:
    """Warns that the script uses the form `old`, at the line of the script; says so for each form once.

    Args:
        old: the form, as a script writes it.
        modern: what Keras 3 has in its place.
    """
    if old in _said:
        return
    _said.add(old)
    if basics.is_initialized() and basics.rank() != 0:
        return
    warn(
        f"`{old}` is how Keras 2 did it; smddp_tf makes Keras 3 accept it. Write: {modern}. "
        "(SMDDP_KERAS_COMPAT=0 switches this off.)",
        FutureWarning,
    )
