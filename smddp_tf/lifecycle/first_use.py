"""Functions that higher folders register, to be called when a program first uses this library (`init`, Keras)."""

from __future__ import annotations

from collections.abc import Callable

_steps: list[Callable[[], None]] = []


def at_use(step: Callable[[], None]) -> None:
    """Lets every `begin` call `step`, which does nothing where it is done."""
    _steps.append(step)


def begin() -> None:
    """Called by `init`, by `import smddp_tf.keras` and by the first use of a name that needs TensorFlow."""
    for step in _steps:
        step()
