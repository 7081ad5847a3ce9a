"""How PyTorch copies gradients into a bucket and back: `python -m benchmarks.gpu.torch_copies`. Needs PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.gpu.answers import Answer, worker
from benchmarks.gpu.clock import batches
from benchmarks.gpu.lists import GradientList, model_list, small_list
from benchmarks.measure import Timing

__all__ = ["measure_all"]

MIB = 1 << 20
Work = Callable[[], None]


class TorchBench:
    """As `bandwidth.Bench`, on PyTorch's stream and by its events; on a processor by the host's clock."""

    def __init__(self, torch: Any, answer: Answer, small: bool) -> None:
        self.torch, self.answer = torch, answer
        self.cuda = torch.cuda.is_available()
        self.device = "cuda" if self.cuda else "cpu"
        self.rotate, self.repeats = (4 * MIB, 3) if small else (1024 * MIB, 40)
        large = torch.randn((MIB if small else 2048 * MIB) // 4, device=self.device)
        self.large = (large, torch.empty_like(large))
        answer.update(rows=[], wrong=0, torch=torch.__version__, device=self.device)

    def row(self, what: str, how: str, size: int, pieces: list[Work], **more: Any) -> None:
        began = time.perf_counter()
        for piece in pieces:
            piece()
        handing_over = (time.perf_counter() - began) / len(pieces)
        rounds = [pieces[i % len(pieces)] for i in range(self.repeats)]
        found = []
        for batch in batches(rounds, more.get("tensors", 1)):  # perhaps a launch for each tensor
            found += self.by_events(batch, handing_over) if self.cuda else self.by_host(batch)
        timing = Timing.of(found)
        self.answer["rows"].append(
            {
                "what": what,
                "how": how,
                "bytes": size,
                "median": timing.median,
                "p10": timing.p10,
                "p90": timing.p90,
                "repetitions": len(found),
                "host": handing_over,
                **more,
            }
        )
        self.answer.save()

    def by_events(self, rounds: Sequence[Work], handing_over: float) -> list[float]:
        cuda = self.torch.cuda
        events = [cuda.Event(enable_timing=True) for _ in range(len(rounds) + 1)]
        cuda.synchronize()
        copy = 2 * self.large[0].numel() * 4 / 8e12
        for _ in range(max(1, min(200, int(2 * handing_over * len(rounds) / copy) + 1))):
            self.large[1].copy_(self.large[0])
        events[0].record()
        for piece, event in zip(rounds, events[1:]):
            piece()
            event.record()
        cuda.synchronize()
        return [a.elapsed_time(b) / 1e3 for a, b in zip(events, events[1:])]

    def by_host(self, rounds: Sequence[Work]) -> list[float]:
        found = []
        for piece in rounds:
            begin = time.perf_counter()
            piece()
            found.append(time.perf_counter() - begin)
        return found


def list_rows(bench: TorchBench, gradients: GradientList, wire: str) -> None:
    """float32 gradients into a bucket of `wire`: copies in one call (_foreach_copy_), and flattened as DDP once did."""
    torch, total = bench.torch, gradients.total
    kind = getattr(torch, wire)
    moved = total * (4 + kind.itemsize)
    sets = []
    for _ in range(max(2, -(-bench.rotate // moved))):
        tensors = [torch.randn(elements, device=bench.device) for elements in gradients.elements]
        bucket = torch.full((total,), float("nan"), dtype=kind, device=bench.device)
        sets.append((tensors, bucket, list(torch.split(bucket, list(gradients.elements)))))
    facts: dict[str, Any] = {
        "list": gradients.name,
        "tensors": len(gradients.elements),
        "dtype": "float32",
        "wire": wire,
    }
    label = f"{gradients.name} float32 as {wire}"
    pieces: list[Work] = [lambda v=v, t=t: torch._foreach_copy_(v, t) for t, _, v in sets]
    bench.row(f"pack {label}", "torch._foreach_copy_", moved, pieces, **facts)
    bench.answer["wrong"] += sum(int((bucket != torch.cat(tensors).to(kind)).sum()) for tensors, bucket, _ in sets)
    pieces = [lambda v=v, t=t: torch._foreach_copy_(t, v) for t, _, v in sets]
    bench.row(f"unpack {label}", "torch._foreach_copy_", moved, pieces, **facts)
    if wire == "float32":
        flatten = torch._utils._flatten_dense_tensors
        pieces = [lambda t=t: flatten(t) for t, _, _ in sets]
        bench.row(f"pack {label}", "torch flatten", moved, pieces, **facts)


def measure_all(torch: Any, answer: Answer, small: bool, until: float) -> None:
    bench = TorchBench(torch, answer, small)
    size = bench.large[0].numel() * 8
    bench.row("device copy", "torch copy_", size, [lambda: bench.large[1].copy_(bench.large[0])])
    of = (lambda model: small_list(model, 5000)) if small else model_list
    for wire in ("float32", "bfloat16", "float16"):
        for model in ("ResNet-50", "BERT-base"):
            if time.monotonic() < until:
                list_rows(bench, of(model), wire)


def main() -> None:
    with worker(__doc__, "small") as (options, answer):
        try:
            import torch
        except ImportError as error:
            answer["absent"] = f"PyTorch cannot be imported: {error}"
        else:
            import torch._utils

            measure_all(torch, answer, options.small, time.monotonic() + options.seconds)


if __name__ == "__main__":
    main()
