"""For layers and steps of the user's own: which ranks still have data in the step that is being traced."""

from smddp_tf.keras.roles.active_ranks import ActiveRanks, current

__all__ = ["ActiveRanks", "current"]
