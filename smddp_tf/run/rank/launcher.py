"""The connection of a rank's process to the launcher that has started it."""

from __future__ import annotations

import os
import socket

from smddp_tf.exceptions import LaunchError
from smddp_tf.link.channel import ADDRESS, KEY
from smddp_tf.link.client import ControlClient


def connect_to_launcher() -> ControlClient:
    """Connects to the launcher that this process's environment names.

    Raises:
        LaunchError: it cannot be reached, or does not prove that it knows the job's key.
    """
    try:
        return ControlClient(os.environ[ADDRESS], os.environ[KEY])
    except OSError as error:
        raise LaunchError(
            f"This rank on {socket.gethostname()} cannot reach smddprun ({error}). The host that starts the job must "
            "accept connections from the others; name the network that joins them: --network-interfaces. And "
            f"{KEY} must be this job's."
        ) from None
