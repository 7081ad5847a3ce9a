"""PyTorch's allreduce of the same gradients: gloo with ranks on one GPU, NCCL on one rank (two cannot share a GPU).

`python -m benchmarks.gpu.torch_ranks --ranks 2 --backend gloo` starts the ranks itself. Buckets of 25 MiB, as
DistributedDataParallel's: pack, all_reduce, unpack. Needs PyTorch.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.answers import Answer, worker
from benchmarks.gpu.lists import GradientList, model_list, small_list

__all__: list[str] = []

BUCKET = 25 << 20


def buckets_of(torch: Any, gradients: GradientList, device: str) -> list[tuple[list[Any], Any, list[Any]]]:
    """Tensors, their bucket, and its parts."""
    groups: list[list[int]] = [[]]
    for elements in reversed(gradients.elements):
        if groups[-1] and 4 * (sum(groups[-1]) + elements) > BUCKET:
            groups.append([])
        groups[-1].append(elements)
    made = []
    for group in groups:
        bucket = torch.zeros(sum(group), device=device)
        made.append(([torch.ones(n, device=device) for n in group], bucket, list(torch.split(bucket, group))))
    return made


def rank_program(answer: Answer, backend: str, small: bool) -> None:
    import torch
    import torch.distributed as dist

    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    dist.init_process_group(backend)
    size = dist.get_world_size()

    def finish() -> None:
        if device != "cpu":
            torch.cuda.synchronize()

    answer.update(rows=[], rank=dist.get_rank(), torch=torch.__version__, device=device)
    for model in ("ResNet-50", "BERT-base"):
        gradients = small_list(model, 500) if small else model_list(model)
        buckets = buckets_of(torch, gradients, device)
        seconds = []
        for step in range(4 if small else 13):
            dist.barrier()
            finish()
            begin = time.perf_counter()
            works = []
            for tensors, bucket, parts in buckets:
                torch._foreach_copy_(parts, tensors)
                works.append(dist.all_reduce(bucket, async_op=True))
            for work, (tensors, bucket, parts) in zip(works, buckets):
                work.wait()
                bucket.div_(size)
                torch._foreach_copy_(tensors, parts)
            finish()
            if step >= 3:
                seconds.append(time.perf_counter() - begin)
        wrong = sum(int((t != 1).sum()) for tensors, _, _ in buckets for t in tensors)
        answer["rows"].append(
            {"list": gradients.name, "bytes": 4 * gradients.total, "wrong": wrong, "seconds": seconds}
        )
        answer.save()
    dist.destroy_process_group()


def start_ranks(answer: Answer, ranks: int, backend: str, small: bool, seconds: float) -> None:
    """Each rank is a process; the answers go into `ranks`, by rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="smddp_gpu_") as folder:
        processes = []
        for rank in range(ranks):
            variables = {
                "RANK": rank,
                "WORLD_SIZE": ranks,
                "LOCAL_RANK": rank,
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": port,
                "GLOO_SOCKET_IFNAME": "lo",
                "NCCL_SOCKET_IFNAME": "lo",
            }
            command = [sys.executable, "-m", __spec__.name, "--backend", backend, "--answer", f"{folder}/{rank}.json"]
            environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
            processes.append(subprocess.Popen(command + ["--small"] * small, env=environment))
        until = time.monotonic() + seconds
        try:
            codes = [process.wait(max(1.0, until - time.monotonic())) for process in processes]
        finally:
            for process in processes:
                process.kill()
        files = [Path(folder, f"{rank}.json") for rank in range(ranks)]
        answer["ranks"] = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
        if any(codes):
            raise RuntimeError(f"the ranks ended with {codes}")


def main() -> None:
    with worker(__doc__, "small", ranks="", backend="gloo") as (options, answer):
        try:
            import torch.distributed
        except ImportError as error:
            answer["absent"] = f"PyTorch cannot be imported: {error}"
            return
        if options.backend == "nccl" and not torch.cuda.is_available():
            answer["absent"] = "PyTorch sees no GPU"
        elif options.ranks:
            start_ranks(answer, int(options.ranks), options.backend, options.small, options.seconds)
        else:
            rank_program(answer, options.backend, options.small)


if __name__ == "__main__":
    main()
