"""`smddp_tf.lifecycle.rank_variables`, for the launcher."""

from smddp_tf.lifecycle.rank_variables import MEETING, variables_of, without_rank_variables

__all__ = ["MEETING", "variables_of", "without_rank_variables"]
