"""Whether imports of another library resolve to this package in this process: see `smddp_tf.aliases`."""

from __future__ import annotations

import sys


def is_aliased(library: str) -> bool:
    """True while imports of `library`, such as "horovod", find this package."""
    return any(library in getattr(finder, "aliased", ()) for finder in sys.meta_path)
