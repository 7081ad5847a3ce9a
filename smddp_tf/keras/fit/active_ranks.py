"""For layers and steps of the user's own: which ranks still have data in the step that is being traced."""

from __future__ import annotations

from smddp_tf.keras.roles import running
from smddp_tf.keras.roles.active_ranks import ActiveRanks

__all__ = ["ActiveRanks", "current"]


def current() -> ActiveRanks | None:
    """Returns the `ActiveRanks` of the training step that is being traced (or run eagerly), or None: all are active."""
    active: ActiveRanks | None = running.here.active
    return active
