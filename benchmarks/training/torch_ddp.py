"""PyTorch's DistributedDataParallel with gloo, in a plain loop."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from benchmarks.backends import gloo
from benchmarks.training.common import LEARNING_RATE, MOMENTUM, WARM_STEPS
from benchmarks.training.models import (
    BLOCKS,
    CLASSES,
    HEADS,
    MLP_LAYERS,
    MLP_WIDTH,
    MODELS,
    RESNET_BLOCKS,
    RESNET_WIDTHS,
    WIDTH,
    batch_of,
)

__all__ = ["TorchDdp"]


class TorchDdp:
    """One rank. A single one trains without DistributedDataParallel, as a user would."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        torch.set_num_threads(1)
        torch.set_num_interop_threads(1)
        if ranks > 1:
            gloo.join(rank, ranks)

    def about(self) -> dict[str, Any]:
        return {"torch": torch.__version__}

    def build(self, name: str) -> None:
        torch.manual_seed(1)
        model = {"MLP": _mlp, "ResNet-20": _ResNet20, "transformer": _Transformer}[name]()
        self._plain = model
        self._model = nn.parallel.DistributedDataParallel(model) if self._ranks > 1 else model
        self._optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
        x, y = batch_of(name, self._rank)
        self._loss = nn.MSELoss() if MODELS[name].targets else nn.CrossEntropyLoss()
        self._x = torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1)) if x.ndim == 4 else x)
        self._y = torch.from_numpy(y if MODELS[name].targets else y.astype(np.int64))

    def train(self, steps: int) -> float:
        for step in range(steps + WARM_STEPS):
            if step == WARM_STEPS:
                begin = time.perf_counter()
            self._optimizer.zero_grad(set_to_none=True)
            self._loss(self._model(self._x), self._y).backward()
            self._optimizer.step()
        return (time.perf_counter() - begin) / steps

    def weights(self) -> list[np.ndarray]:
        return [parameter.detach().numpy() for parameter in self._plain.parameters()]

    def close(self) -> None:
        if self._ranks > 1:
            dist.destroy_process_group()


def _mlp() -> nn.Module:
    hidden = [part for _ in range(MLP_LAYERS - 1) for part in (nn.Linear(MLP_WIDTH, MLP_WIDTH), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(MLP_WIDTH, MLP_WIDTH))


class _ResNet20(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        widths = (RESNET_WIDTHS[0], *RESNET_WIDTHS)
        self.begin = _normalised(3, widths[0])
        self.blocks = nn.ModuleList()
        for before, width in zip(widths, widths[1:]):
            for block in range(RESNET_BLOCKS):
                self.blocks.append(_Block(width if block else before, width))
        self.end = nn.Linear(widths[-1], CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.begin(x))
        for block in self.blocks:
            x = block(x)
        return self.end(x.mean((2, 3)))


class _Block(nn.Module):
    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        strides = 1 if before == width else 2
        self.first, self.second = _normalised(before, width, strides=strides), _normalised(width, width)
        self.shortcut = nn.Identity() if before == width else _normalised(before, width, 1, strides)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


def _normalised(before: int, width: int, size: int = 3, strides: int = 1) -> nn.Module:
    convolution = nn.Conv2d(before, width, size, strides, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(width))


class _Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Layer() for _ in range(BLOCKS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](x + self.attention(x, x, x, need_weights=False)[0])
        return self.norms[1](x + self.inner(x))
