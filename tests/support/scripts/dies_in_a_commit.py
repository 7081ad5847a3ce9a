"""`partitioned_ranks.py`, whose process of number 2 kills itself.  dies_in_a_commit.py FOLDER BATCHES SECONDS PHASE

PHASE: of the third commit to other ranks, "before" it sends, "between" two messages, "after" it has received, at the
"barrier"; or "move": while parts are given out in a later session.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from smddp_tf.collectives import ops
from smddp_tf.keras.elastic import part_copies
from tests.support.scripts import partitioned_ranks
from tests.support.scripts.elastic_ranks import die_once

FOLDER, PHASE = Path(sys.argv[1]), sys.argv[4]
THIRD = 3


def dies(function: Any, when: str, after: bool = False, turn: int = 1) -> Any:
    """`function`, where the process dies in its call of that number."""
    calls = [0]

    def call(*args: Any, **kwargs: Any) -> Any:
        calls[0] += when == PHASE and os.environ["SMDDP_RUN_NUMBER"] == "2"
        if calls[0] == turn and not after:
            die_once(FOLDER)
        result = function(*args, **kwargs)
        if calls[0] == turn and after:
            die_once(FOLDER)
        return result

    return call


part_copies.Commit.send = dies(dies(part_copies.Commit.send, "before", turn=THIRD), "after", after=True, turn=THIRD)  # type: ignore[method-assign]
part_copies.tf = type("", (), {"__getattr__": lambda _, name: getattr(partitioned_ranks.tf, name)})()
part_copies.tf.split = dies(partitioned_ranks.tf.split, "between", turn=THIRD)


class Ops:
    allgather = staticmethod(ops.allgather)
    alltoall = staticmethod(ops.alltoall)
    barrier = staticmethod(dies(ops.barrier, "barrier", after=True, turn=THIRD))


part_copies.ops = Ops  # type: ignore[assignment]
part_copies.allgather_object = dies(part_copies.allgather_object, "move", turn=7)  # type: ignore[attr-defined]


if __name__ == "__main__":
    partitioned_ranks.main(FOLDER, int(sys.argv[2]), float(sys.argv[3]), "function")
