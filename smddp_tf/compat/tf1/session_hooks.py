"""Hooks for `tf.compat.v1.train.MonitoredTrainingSession`, for scripts with graphs and sessions of TensorFlow 1."""

from __future__ import annotations

import tensorflow as tf

from smddp_tf.collectives import functions, graph, root_ranks


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives every rank the values of all global variables on rank `root_rank`, when a session begins.

    Example:
    >>> hooks = [hvd.BroadcastGlobalVariablesHook(0)]
    >>> with tf.Graph().as_default():
    ...     train_op = tf.compat.v1.get_variable("weight", [3], use_resource=True).assign_add([1.0, 1.0, 1.0])
    ...     with tf.compat.v1.train.MonitoredTrainingSession(hooks=hooks) as session:
    ...         session.run(train_op)

    Args:
        root_rank: integer, the rank whose values all ranks get.
        device: device for the op. Defaults to TensorFlow's choice.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_ranks.checked_root(root_rank)
        self.device = device
        self.bcast_op: tf.Operation | None = None

    def begin(self) -> None:
        """Adds the op to the graph, which is finished afterwards."""
        if self.bcast_op is None or self.bcast_op.graph is not tf.compat.v1.get_default_graph():
            with graph.device_scope(self.device):
                self.bcast_op = functions.broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: tf.compat.v1.Session, coord: object) -> None:
        """Runs the op."""
        session.run(self.bcast_op)
