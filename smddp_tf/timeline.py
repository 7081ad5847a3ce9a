"""Puts the files of a timeline together: at its end, and offline with `python -m smddp_tf.timeline merge FILE`.

Rank 0 writes `FILE`, every other rank `FILE.rankN.part` on its own host. Each is valid by itself, and stays when a job
crashes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from smddp_tf.monitor.timeline import finish, merge, parts_of

__all__ = ["finish", "merge", "parts_of"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line `python -m smddp_tf.timeline`.

    Args:
        arguments: the words of the command line. Defaults to those of the process.

    Returns:
        The exit status, an integer.

    Raises:
        SystemExit: the arguments are wrong.
    """
    parser = argparse.ArgumentParser(prog="python -m smddp_tf.timeline", description="Timelines of smddp_tf.")
    command = parser.add_subparsers(dest="command", required=True).add_parser(
        "merge", help="add to FILE what the other ranks have written"
    )
    command.add_argument("file", metavar="FILE", help="what rank 0 wrote")
    command.add_argument("parts", metavar="PART", nargs="*", help="other ranks' files; default: FILE.rankN.part")
    command.add_argument("--keep", action="store_true", help="do not remove the parts")
    chosen = parser.parse_args(arguments)
    try:
        merge(chosen.file, chosen.parts or None, chosen.keep)
    except OSError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
