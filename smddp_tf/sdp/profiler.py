"""`smdistributed.dataparallel`: the profiler's switch, as `smdebug` uses it."""

from __future__ import annotations

import smddp_tf as hvd

__all__ = ["start_profiler", "stop_profiler"]


def start_profiler(path: str, append_rank: bool = False) -> None:
    """Begins to write what this library does when, as a Chrome trace; see `hvd.start_timeline`.

    There is one file, rank 0's, with the events of all ranks.

    Args:
        path: String, the file.
        append_rank: Boolean. Adds `.rank0` to its name. Defaults to `False`.
    """
    hvd.start_timeline(f"{path}.rank{hvd.rank()}" if append_rank else path)


def stop_profiler() -> None:
    """Ends what `start_profiler` began, and completes the file."""
    hvd.stop_timeline()
