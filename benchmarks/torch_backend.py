"""PyTorch's process groups: the backend "smddp" beside gloo, by turns in the same ranks.

`.matrix/torch/bin/python -m benchmarks.torch_backend [--ranks 2] [--nodes 2 --lab 200]` (the environment of
`make test-torch`): allreduces of 64 KiB to 256 MiB of float32, then steps of `DistributedDataParallel` with an MLP of 7
layers of 1,024 and with a transformer, one thread a rank. The slowest rank counts; figures are medians. In the lab
times are of the bound: the bytes of a ring allreduce between the nodes, on one link. Results are checked.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.lab import Lab, why_not
from benchmarks.measure import duration_text, wire_bound
from benchmarks.ranks import environment_of_ranks
from benchmarks.sharding import pretend

__all__ = ["main"]

KIB = 1024
BACKENDS = ("smddp", "gloo")
PORT = 4730
RUN_SECONDS = 900


def sizes(in_lab: bool) -> list[int]:
    return [64 * KIB, KIB**2, 8 * KIB**2, 25 * KIB**2, *(() if in_lab else (64 * KIB**2, 256 * KIB**2))]


def models() -> dict[str, tuple[Any, Any]]:
    """A model and a batch each."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    mlp = nn.Sequential(*(each for _ in range(7) for each in (nn.Linear(1024, 1024), nn.ReLU())))
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    return {
        "MLP": (mlp, torch.randn(32, 1024)),
        "transformer": (nn.TransformerEncoder(layer, 4), torch.randn(8, 64, 256)),
    }


def work(folder: Path, address: str, in_lab: bool) -> None:
    """The program of one rank: the seconds of each repetition, by what is measured and backend."""
    import torch
    import torch.distributed as dist

    import smddp_tf.torch  # noqa: F401

    torch.set_num_threads(1)
    rank, ranks = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    dist.init_process_group("smddp", rank=rank, world_size=ranks, init_method=f"tcp://{address}")
    groups = {"smddp": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}

    def timed(call: Callable[[], object]) -> float:
        dist.barrier(groups["smddp"])
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun

    found: dict[str, dict[str, list[float]]] = {}
    for size in sizes(in_lab):
        tensor = torch.empty(size // 4)
        times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
        for _ in range(5 if size > 32 * KIB**2 or in_lab else 25):
            for backend in BACKENDS:
                tensor.fill_(rank + 1)
                times[backend].append(timed(lambda: dist.all_reduce(tensor, group=groups[backend])))  # noqa: B023
                assert tensor[0] == tensor[-1] == ranks * (ranks + 1) / 2
        found[str(size)] = times
    for name in models():
        steps = {backend: step_of(*models()[name], group) for backend, group in {**groups, "alone": None}.items()}
        times = {backend: [] for backend in steps}
        for turn in range(8 if in_lab else 20):
            for backend, step in steps.items():
                seconds = timed(step)
                if turn >= 2:
                    times[backend].append(seconds)
        found[name] = times
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


def step_of(model: Any, batch: Any, group: Any) -> Callable[[], None]:
    """A training step; `group` None: of this rank alone."""
    import torch

    net = torch.nn.parallel.DistributedDataParallel(model, process_group=group) if group is not None else model
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()

    return step


def show(of_ranks: list[dict[str, dict[str, list[float]]]], nodes: int, rate: int) -> None:
    medians = {
        what: {
            backend: statistics.median(map(max, zip(*(found[what][backend] for found in of_ranks))))
            for backend in of_ranks[0][what]
        }
        for what in of_ranks[0]
    }
    Console().print_json(data=medians, indent=None)
    table = Table("", *BACKENDS, "gloo / smddp", "of the bound" if rate else "alone")
    for what, of in medians.items():
        last = ""
        if "alone" in of:
            last = duration_text(of["alone"])
        elif rate:
            bound = wire_bound(int(what), nodes, rate * 1e6)
            last = " / ".join(f"{of[backend] / bound:.2f}" for backend in BACKENDS)
        name = f"{int(what) // KIB} KiB" if what.isdigit() else f"{what}, a step"
        ratio = f"{of['gloo'] / of['smddp']:.2f}"
        table.add_row(name, *(duration_text(of[backend]) for backend in BACKENDS), ratio, last)
    Console().print(table)


def on_this_host(ranks: int, words: list[str]) -> list[Any]:
    """What the ranks answer, which the mpirun on PATH starts."""
    root = ["--allow-run-as-root"] if os.getuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="smddp_bench_") as folder:
        command = ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-np", str(ranks), sys.executable, "-m"]
        command += ["benchmarks.torch_backend", *(word.format(folder=folder) for word in words)]
        subprocess.run(command, env=environment_of_ranks(), timeout=RUN_SECONDS, check=True)
        return [json.loads(Path(folder, f"{rank}.json").read_text(encoding="utf-8")) for rank in range(ranks)]


def main() -> None:
    """Starts the ranks and shows what they measured; is itself the program of a rank."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.torch_backend", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--lab", type=int, default=0, metavar="MBIT/S")
    parser.add_argument("--tcp", action="store_true", help="the library without MPI, as torchrun starts it")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    host = "10.77.0.1" if options.lab else "127.0.0.1"  # in the lab by its script
    if options.tcp:
        os.environ["SMDDP_MPI"] = "off"
    if options.folder:
        pretend(0 if options.lab else options.nodes, options.ranks)
        work(options.folder, f"{host}:{PORT}", bool(options.lab))
        return
    if options.lab and (reason := why_not()):
        sys.exit(reason)
    words = [f"--ranks={options.ranks}", f"--nodes={options.nodes}", f"--lab={options.lab}", "--folder", "{folder}"]
    words += ["--tcp"] if options.tcp else []
    if not options.lab:
        found = on_this_host(options.ranks, words)
    else:
        with Lab(options.nodes, options.lab) as lab:
            interface = {"GLOO_SOCKET_IFNAME": "eth0"}
            per_node = options.ranks // options.nodes
            found = lab.run(per_node, "", "benchmarks.torch_backend", *words, variables=interface)
    show(found, options.nodes, options.lab)


if __name__ == "__main__":
    main()
