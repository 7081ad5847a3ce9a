"""The gradients of well-known models as lists of shapes, written from their published configurations."""

from __future__ import annotations

import math

__all__ = ["MODELS", "bert_base", "mlp", "model_bytes", "resnet50"]

Shapes = list[tuple[int, ...]]


def resnet50() -> Shapes:
    """ResNet-50 (He et al. 2015, table 1): convolutions without bias, each followed by a batch normalization."""
    shapes = _convolution(7, 3, 64)
    channels = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            shapes += _convolution(1, channels, width)
            shapes += _convolution(3, width, width)
            shapes += _convolution(1, width, 4 * width)
            if block == 0:
                shapes += _convolution(1, channels, 4 * width)
            channels = 4 * width
    return [*shapes, (channels, 1000), (1000,)]


def bert_base() -> Shapes:
    """BERT-base, uncased (Devlin et al. 2018): embeddings, 12 layers, pooler."""
    width, inner, layers = 768, 3072, 12
    shapes: Shapes = [(30522, width), (512, width), (2, width), *_normalization(width)]
    for _ in range(layers):
        for _ in ("query", "key", "value", "output"):
            shapes += _dense(width, width)
        shapes += _normalization(width)
        shapes += [*_dense(width, inner), *_dense(inner, width), *_normalization(width)]
    return [*shapes, *_dense(width, width)]


def mlp() -> Shapes:
    """A few large matrices: 784 inputs, three hidden layers of 4096, 10 classes."""
    widths = [784, 4096, 4096, 4096, 10]
    return [shape for pair in zip(widths, widths[1:]) for shape in _dense(*pair)]


MODELS = {"ResNet-50": resnet50, "BERT-base": bert_base, "MLP": mlp}


def model_bytes(model: str) -> int:
    """Bytes of all gradients of the model in float32."""
    return 4 * sum(math.prod(shape) for shape in MODELS[model]())


def _convolution(kernel: int, inputs: int, outputs: int) -> Shapes:
    return [(kernel, kernel, inputs, outputs), *_normalization(outputs)]


def _normalization(width: int) -> Shapes:
    return [(width,), (width,)]


def _dense(inputs: int, outputs: int) -> Shapes:
    return [(inputs, outputs), (outputs,)]
