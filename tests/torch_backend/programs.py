"""Programs of PyTorch's users, on the ranks of a job: programs.py NAME FOLDER ARGUMENTS...

Each rank writes RANK.json into FOLDER. Values differ by rank and position, so that a wrong answer does not look right.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

import smddp_tf.torch
from smddp_tf.torch_backend import launched

launched.set_variables()  # once more: does nothing

OPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "SUM": lambda of_ranks: of_ranks.sum(0),
    "AVG": lambda of_ranks: of_ranks.mean(0),
    "MIN": lambda of_ranks: of_ranks.amin(0),
    "MAX": lambda of_ranks: of_ranks.amax(0),
    "PRODUCT": lambda of_ranks: of_ranks.prod(0),
}
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def brought(rank: int, count: int = 5) -> torch.Tensor:
    return torch.arange(1, count + 1, dtype=torch.float64) * (rank + 1)


def of_ranks(ranks: range | list[int], count: int = 5) -> torch.Tensor:
    return torch.stack([brought(rank, count) for rank in ranks])


def same(got: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    assert torch.equal(got.double(), expected.double()), (what, got, expected)


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except (NotImplementedError, RuntimeError, ValueError) as error:
        return str(error)
    raise AssertionError("there was no error")


def reductions() -> None:
    rank, ranks = dist.get_rank(), range(dist.get_world_size())
    for dtype in (*FLOATS, *INTEGERS):
        for name, reduced in OPS.items():
            if (name == "AVG" and dtype in INTEGERS) or (name == "PRODUCT" and len(ranks) > 2):
                continue  # means of integers are no integers; the products here are too large for 8 bits
            tensor = brought(rank, 3).to(dtype)
            dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
            same(tensor, reduced(of_ranks(ranks, 3)).to(dtype), (dtype, name))
    turned = brought(rank, 12).reshape(3, 4).t()
    work = dist.all_reduce(turned, async_op=True)
    assert work.wait()
    assert work.is_completed()
    same(turned, of_ranks(ranks, 12).sum(0).reshape(3, 4).t(), "not contiguous")
    any_true = torch.tensor([rank == 0, True, False])
    dist.all_reduce(any_true, dist.ReduceOp.MAX)
    assert any_true.tolist() == [True, True, False]
    complex_sum = torch.complex(brought(rank), -brought(rank))
    dist.all_reduce(complex_sum)
    assert torch.equal(complex_sum, torch.complex(of_ranks(ranks).sum(0), -of_ranks(ranks).sum(0)))
    to_one = brought(rank)
    dist.reduce(to_one, dst=1)
    same(to_one, of_ranks(ranks).sum(0) if rank == 1 else brought(rank), "reduce")
    empty = torch.zeros(0)
    dist.all_reduce(empty)
    part = torch.zeros(3)
    dist.reduce_scatter_tensor(part, brought(rank, 3 * len(ranks)).float())
    same(part, of_ranks(ranks, 3 * len(ranks)).sum(0).reshape(-1, 3)[rank], "reduce_scatter_tensor")
    dist.reduce_scatter(part, list(brought(rank, 3 * len(ranks)).float().reshape(-1, 3)), dist.ReduceOp.AVG)
    same(part, of_ranks(ranks, 3 * len(ranks)).mean(0).reshape(-1, 3)[rank], "reduce_scatter")
    with dist._coalescing_manager():
        first, second = brought(rank, 4), brought(rank, 2)
        dist.all_reduce(first)
        dist.all_reduce(second)
    same(torch.cat([first, second]), torch.cat([of_ranks(ranks, 4).sum(0), of_ranks(ranks, 2).sum(0)]), "coalesced")


def copies() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    last = size - 1
    tensor = brought(rank)
    dist.broadcast(tensor, last)
    same(tensor, brought(last), "broadcast")
    eighths = brought(rank).to(torch.float8_e4m3fn)
    dist.broadcast(eighths, last)
    same(eighths.float(), brought(last), "8-bit floats")
    listed = [torch.zeros(r + 1, dtype=torch.float64) for r in range(size)]
    dist.all_gather(listed, brought(rank, rank + 1))
    for r, part in enumerate(listed):
        same(part, brought(r, r + 1), "all_gather of different sizes")
    whole = torch.zeros(2, 5 * size, dtype=torch.float64).t()[: 5 * size, 0].reshape(size, 5)
    dist.all_gather_into_tensor(whole, brought(rank))
    same(whole, of_ranks(range(size)), "all_gather_into_tensor")
    rows = torch.zeros(size, 2)
    dist.all_to_all_single(rows, torch.arange(2.0 * size).reshape(size, 2) + 100 * rank)
    same(rows, torch.stack([torch.tensor([2.0 * rank, 2 * rank + 1]) + 100 * r for r in range(size)]), "all_to_all")
    received = torch.zeros(sum(range(1, size + 1)) if rank == 0 else 0, 2)
    splits = [r + 1 for r in range(size)] if rank == 0 else [0] * size
    dist.all_to_all_single(received, torch.full((rank + 1, 2), float(rank)), splits, [rank + 1] + [0] * last)
    same(received[:, 1], torch.cat([torch.full((n,), i) for i, n in enumerate(splits)]), "rows by splits")
    lists = [torch.zeros(rank + 1) for _ in range(size)]
    dist.all_to_all(lists, [torch.full((r + 1,), 10.0 * rank + r) for r in range(size)])
    for r, part in enumerate(lists):
        same(part, torch.full((rank + 1,), 10.0 * r + rank), "all_to_all")
    gathered = [torch.zeros(5, dtype=torch.float64) for _ in range(size)] if rank == 1 else None
    dist.gather(brought(rank), gathered, dst=1)
    if gathered:
        same(torch.stack(gathered), of_ranks(range(size)), "gather")
    scattered = torch.zeros(2)
    dist.scatter(scattered, [torch.tensor([r, -r]).float() for r in range(size)] if rank == 1 else None, src=1)
    same(scattered, torch.tensor([rank, -rank]), "scatter")
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]
    one: list[Any] = [("of", rank)]
    dist.broadcast_object_list(one, last)
    assert one == [("of", last)]
    dist.scatter_object_list(one, [f"for {r}" for r in range(size)] if rank == 0 else None, src=0)
    assert one == [f"for {rank}"]
    dist.barrier()


def groups() -> None:
    """Groups of one, of all, of some that share ranks; made twice, because PyTorch counts them anew."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for lists in ([[r] for r in range(size)], [list(range(size))], [[0, size - 1], list(range(1, size))]):
        for members in lists:
            group = dist.new_group(members)
            if rank in members:
                tensor = brought(rank)
                dist.all_reduce(tensor, group=group)
                same(tensor, of_ranks(members).sum(0), members)
                dist.broadcast(tensor, members[-1], group=group)
                parts = [torch.zeros(1) for _ in members]
                dist.all_gather(parts, torch.tensor([float(rank)]), group=group)
                assert [int(part) for part in parts] == members
    for again in range(2):  # under mpirun the session goes on, with new stores
        dist.barrier()  # the store is rank 0's
        dist.destroy_process_group()
        store = f"file://{sys.argv[2]}/store{again}"  # rank 0's port may not be free yet
        dist.init_process_group("smddp", init_method=store, rank=rank, world_size=size)
        odd = dist.new_group(list(range(1, size)))
        if rank > 0:
            tensor = brought(rank)
            dist.all_reduce(tensor, group=odd)
            same(tensor, of_ranks(range(1, size)).sum(0), "made again")
    gloo = dist.new_group(backend="gloo")
    tensor = brought(rank)
    dist.all_reduce(tensor, group=gloo)
    same(tensor, of_ranks(range(size)).sum(0), "a group of gloo beside it")


def beside_gloo() -> None:
    """The default group is gloo's."""
    rank, size = dist.get_rank(), dist.get_world_size()
    if rank == 0 and not smddp_tf.is_initialized():
        told = error_of(lambda: dist.new_group([0], backend="smddp", use_local_synchronization=True))
        assert "of all ranks. Received: ranks=[0]" in told
    everyone = dist.new_group(backend="smddp")
    last = dist.new_group([size - 1], backend="smddp")
    tensor = brought(rank)
    dist.all_reduce(tensor, group=everyone)
    if rank == size - 1:
        dist.all_reduce(tensor, group=last)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    same(tensor, of_ranks(range(size)).sum(0), "two backends")
    first, second = nn.Parameter(brought(rank, 6).reshape(2, 3).t()), brought(rank)
    dist.broadcast(first, 1, group=everyone)
    same(first.detach(), brought(1, 6).reshape(2, 3).t(), "a parameter that is not contiguous")
    dist.all_reduce(second, group=everyone)


def works() -> None:
    rank, size = dist.get_rank(), dist.get_world_size()
    total = of_ranks(range(size)).sum(0)
    first, second = brought(rank), brought(rank)
    works = [dist.all_reduce(tensor, async_op=True) for tensor in (first, second)]
    future = works[1].get_future().then(lambda done: done.value()[0] * 2)
    same(future.wait(), 2 * total, "a future")
    assert works[0].wait(timedelta(seconds=30))
    assert works[0].wait()
    same(works[0].result()[0], total, "the result")
    del works
    dist.all_reduce(torch.ones(1 << 20), async_op=True)  # nobody waits for it
    late = brought(rank)
    if rank == 0:
        work = dist.all_reduce(late, async_op=True)
        assert not work.is_completed()
        assert "has not ended within 0:00:00.05" in error_of(lambda: work.wait(timedelta(milliseconds=50)))
        Path(sys.argv[2], "late").touch()
        work.wait()
    else:
        while not Path(sys.argv[2], "late").exists():
            pass
        dist.all_reduce(late)
    same(late, total, "a late rank")
    assert 'new_group(backend="gloo")' in error_of(lambda: dist.send(late, 1 - rank))
    assert "Received: RedOpType.BAND" in error_of(lambda: dist.all_reduce(late.int(), dist.ReduceOp.BAND))
    assert "torch.sparse_coo" in error_of(lambda: dist.all_reduce(torch.eye(2).to_sparse()))
    assert "multiple of 2. Received: [3, 2]" in error_of(
        lambda: dist.all_to_all_single(torch.ones(3, 2), torch.ones(3, 2))
    )
    assert "rank 0 has [3], rank 1 has [4]" in error_of(lambda: dist.all_reduce(torch.ones(3 + rank)))
    dist.all_reduce(second)  # and goes on
    guarded = torch.zeros(16)
    assert "the dtypes of the inputs" in error_of(
        lambda: dist.all_gather_into_tensor(guarded[:8], torch.ones(4, dtype=torch.float64))
    )
    assert "the dtypes of the inputs" in error_of(
        lambda: dist.reduce_scatter_tensor(guarded[:4], torch.ones(8, dtype=torch.float64))
    )
    assert "2 times the elements" in error_of(lambda: dist.reduce_scatter_tensor(guarded[:4], torch.ones(6)))
    assert "not defined for torch.float8" in error_of(lambda: dist.all_reduce(torch.ones(2).to(torch.float8_e5m2)))
    assert "new_group" in error_of(lambda: dist.group.WORLD.split_group([0]))
    dist.all_reduce(guarded)
    same(guarded, torch.zeros(16), "memory that a wrong call must not change")
    gathered = [torch.zeros(5, dtype=torch.float64) for _ in range(size)]
    work = dist.all_gather(gathered, brought(rank), async_op=True)
    while not work.is_completed():
        pass
    same(torch.stack(gathered), of_ranks(range(size)), "a work that is polled")
    with torch.inference_mode():
        inside = torch.zeros(2, 5, dtype=torch.float64).t()
        work = dist.broadcast(inside, 0, async_op=True)
    work.wait()
    chained = dist.all_reduce(brought(rank), async_op=True).get_future()
    again = chained.then(lambda done: dist.all_reduce(done.value()[0], async_op=True).get_future().wait()[0])
    same(again.wait(), size * total, "a future inside of a future")
    negative = torch._neg_view(brought(rank))
    whole = torch.zeros(5 * size, dtype=torch.float64)
    dist.all_gather_into_tensor(whole, negative)
    same(whole, -of_ranks(range(size)).reshape(-1), "a tensor with the negative bit")
    short = [torch.zeros(2 - rank), torch.zeros(2)]  # wrong on rank 1, which ends the session
    if rank == 1:
        told = error_of(lambda: dist.all_gather(short, torch.ones(2)))
        assert "The ranks send 4 elements. Expected: 3, as many as the output of this rank has" in told
    else:
        dist.all_gather(short, torch.ones(2))


def model() -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(6, 8, generator=generator), torch.randn(6, 4, generator=generator)


def wrapped(kind: str, net: nn.Module) -> nn.Module:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

    if kind == "fsdp1":
        return FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    if kind in ("fsdp2", "hybrid"):
        size = dist.get_world_size()
        shape, names = ((2, size // 2), ("replicas", "parts")) if kind == "hybrid" else ((size,), ("parts",))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        for layer in (layer for layer in net if isinstance(layer, nn.Linear)):
            fully_shard(layer, mesh=mesh)
        return fully_shard(net, mesh=mesh)
    if kind == "compiled":
        return torch.compile(nn.parallel.DistributedDataParallel(net), backend="eager")
    # With several buckets what follows PowerSGD's futures would race with the next bucket, on any backend of CPUs.
    options: dict[str, Any] = {} if kind == "power_sgd" else {"bucket_cap_mb": 0.002}
    if kind == "view":
        options |= {"gradient_as_bucket_view": True, "static_graph": True}
    if kind == "unused":
        options |= {"find_unused_parameters": True}
    ddp = nn.parallel.DistributedDataParallel(net, **options)
    if kind == "power_sgd":
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=3)
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    if kind == "hook":
        ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return ddp


def weights(kind: str, net: nn.Module) -> list[float]:
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.fsdp import FullyShardedDataParallel

    if kind == "fsdp1":  # get_model_state_dict fails on it on CPUs, with gloo as well
        with FullyShardedDataParallel.summon_full_params(net):
            return torch.cat([value.reshape(-1) for value in net.state_dict().values()]).tolist()
    state = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return torch.cat([value.reshape(-1) for value in state.values()]).tolist() if state else []


def trained(kind: str) -> list[float]:
    """The weights after 20 steps, each rank with its own data."""
    net = wrapped(kind, model())
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for step in range(20):
        inputs, targets = batch(step, dist.get_rank())
        if kind == "no_sync" and step % 2 == 0:
            with net.no_sync():
                mse_loss(net(inputs), targets).backward()
            continue
        mse_loss(net(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(kind, net)


def one_process(ranks: int) -> list[float]:
    """The same without a group, on the data of all ranks."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for step in range(20):
        batches = [batch(step, rank) for rank in range(ranks)]
        mse_loss(net(torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches])).backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([value.reshape(-1) for value in net.state_dict().values()]).tolist()


def checkpoint() -> None:
    """`torch.distributed.checkpoint` of a model in parts; DTensor's own collectives; functional collectives."""
    import torch.distributed._functional_collectives as functional
    import torch.distributed.checkpoint as saved
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_state_dict,
        set_model_state_dict,
        set_state_dict,
    )
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    folder = f"{sys.argv[2]}/checkpoint"
    nets, states = [], []
    for seed in (0, 1):
        net = wrapped("fsdp2", model())
        optimizer = torch.optim.Adam(net.parameters(), 1e-2 * (seed + 1))
        net(torch.ones(2, 8) * (seed + 1)).sum().backward()
        optimizer.step()
        nets.append((net, optimizer))
        state = dict(zip(("model", "optimizer"), get_state_dict(net, optimizer)))
        states.append(state)
        if seed == 0:
            saved.save(state, checkpoint_id=folder)
    saved.load(states[1], checkpoint_id=folder)
    set_state_dict(*nets[1], model_state_dict=states[1]["model"], optim_state_dict=states[1]["optimizer"])
    for first, second in zip(nets[0][0].parameters(), nets[1][0].parameters()):
        assert torch.equal(first.to_local(), second.to_local())
    saved.async_save({"model": states[1]["model"]}, checkpoint_id=f"{folder}.async").result()
    full = {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2)} if dist.get_rank() == 0 else {}
    from_rank_0 = wrapped("fsdp2", nn.Sequential(nn.Linear(3, 2)))
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(from_rank_0, {f"0.{name}": value for name, value in full.items()}, options=options)
    same(from_rank_0[0].weight.full_tensor(), torch.arange(6.0).reshape(2, 3), "broadcast_from_rank0")
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size,))
    matrix = torch.arange(16.0).reshape(4, 4)
    dtensor = distribute_tensor(matrix, mesh, [Shard(0)])
    same(dtensor.redistribute(mesh, [Shard(1)]).full_tensor(), matrix, "redistribute")
    same((dtensor @ dtensor.t()).full_tensor(), matrix @ matrix.t(), "a product")
    total = functional.all_reduce(brought(dist.get_rank()), "sum", mesh)
    same(total + 0, of_ranks(range(size)).sum(0), "functional")


def fails(how: str) -> None:
    """Rank 1 raises, or is killed, in the middle of training."""
    import os
    import signal

    net = wrapped("ddp", model())
    for step in range(4):
        if step == 2 and dist.get_rank() == 1:
            if how == "raises":
                raise ValueError("a bad sample")
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, targets = batch(step, dist.get_rank())
        mse_loss(net(inputs), targets).backward()


def main() -> None:
    name, folder, *arguments = sys.argv[1:]
    backend = arguments.pop() if name == "train" else "gloo" if name == "beside_gloo" else "smddp"
    wire = smddp_tf.torch.Options("bfloat16") if name == "wire" else None
    begun = smddp_tf.is_initialized()  # where the import has done it, for want of PyTorch's variables
    dist.init_process_group(backend, pg_options=wire, timeout=timedelta(seconds=120))
    rank = dist.get_rank()
    result: Any = "passed"
    if name == "train":
        result = trained(arguments[0])
    elif name == "wire":
        tensor = torch.full((1 << 16,), 1.0 + 2.0**-12)
        dist.all_reduce(tensor)
        result = tensor[0].item()
    else:
        globals()[name](*arguments)
    assert "tensorflow" not in sys.modules
    dist.destroy_process_group()
    assert smddp_tf.is_initialized() == begun
    Path(folder, f"{rank}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
