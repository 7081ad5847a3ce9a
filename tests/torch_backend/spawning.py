"""spawning.py env|tcp|file WHERE: processes that `torch.multiprocessing` starts make a group, twice."""

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing

import smddp_tf.torch  # noqa: F401


def work(rank: int, how: str, where: str) -> None:
    options: dict[str, Any] = {}
    if how == "env":
        os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=where)
    else:
        options["init_method"] = f"tcp://127.0.0.1:{where}" if how == "tcp" else f"file://{where}"
    for _ in range(1 if how == "file" else 2):
        dist.init_process_group("smddp", rank=rank, world_size=2, **options)
        total = torch.tensor([rank + 1.0])
        dist.all_reduce(total)
        last = dist.new_group([1])
        if rank == 1:
            dist.all_reduce(total, group=last)
        total += 4 * (dist.get_rank() == rank)
        print(how, rank, total.item(), flush=True)
        dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, args=tuple(sys.argv[1:]), nprocs=2)
