"""Functions that higher folders register, to be called when a program first uses what lies below them."""

from __future__ import annotations

from collections.abc import Callable

LIBRARY = "the library"  # `init`, `import smddp_tf.keras` and the first use of a name that needs TensorFlow
REDUCING = "an optimizer that reduces"
_steps: dict[str, list[Callable[[], None]]] = {}


def at_use(step: Callable[[], None], of: str = LIBRARY) -> None:
    """Lets every `begin` of that use call `step`, which does nothing where it is done."""
    _steps.setdefault(of, []).append(step)


def begin(use: str = LIBRARY) -> None:
    """Called where a program begins to use it."""
    for step in _steps.get(use, ()):
        step()
