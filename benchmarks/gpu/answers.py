"""What the worker programs share: their arguments, and the file in which they answer."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path

__all__ = ["Answer", "launched_rank", "worker"]


class Answer(dict):
    """Goes to a file whenever it is saved, so that what was found out stays when the program is ended.

    A folder stands for its file RANK.json.
    """

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self.path = path / f"{launched_rank()}.json" if path is not None and path.is_dir() else path

    def save(self) -> None:
        if self.path is None:
            return
        beside = self.path.with_name(self.path.name + ".new")
        beside.write_text(json.dumps(self), encoding="utf-8")
        os.replace(beside, self.path)


def launched_rank() -> int:
    """What the launcher says: Open MPI's or Hydra's."""
    return int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or 0)


@contextlib.contextmanager
def worker(description: str | None, *switches: str, **texts: str) -> Iterator[tuple[argparse.Namespace, Answer]]:
    """The frame of a worker. An exception goes into the answer, as `error`, and ends the program with 1.

    Args:
        description: for `--help`.
        switches: options without a value.
        texts: options with one, and its default.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--answer", type=Path, help="file for the answer, JSON, or a folder for RANK.json")
    parser.add_argument("--seconds", type=float, default=60.0, help="begin nothing more after that")
    for switch in switches:
        parser.add_argument(f"--{switch}", action="store_true")
    for name, default in texts.items():
        parser.add_argument(f"--{name}", default=default)
    options = parser.parse_args()
    answer = Answer(options.answer)
    try:
        yield options, answer
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"
        answer.save()
        traceback.print_exc()
        raise SystemExit(1) from None
    answer.save()
    if options.answer is None:
        print(json.dumps(answer, indent=1))
