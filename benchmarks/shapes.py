"""The gradients of well-known models as lists of shapes, written from their published configurations."""

from __future__ import annotations

import math
from collections.abc import Iterator

__all__ = ["MODELS", "bert_base", "bert_large", "mlp", "mlp7", "model_bytes", "resnet50", "resnet50_work"]

Shapes = list[tuple[int, ...]]


def resnet50() -> Shapes:
    """ResNet-50 (He et al. 2015, table 1): convolutions without bias, each followed by a batch normalization."""
    shapes = [shape for layer in _resnet50_convolutions() for shape in _convolution(*layer[:3])]
    return [*shapes, *_dense(2048, 1000)]


def resnet50_work() -> list[float]:
    """Multiplications an image for each of its gradients: weights times positions; normalizations and biases none."""
    work = [layer[0] ** 2 * layer[1] * layer[2] * layer[3] ** 2 for layer in _resnet50_convolutions()]
    return [float(one) for convolution in work for one in (convolution, 0, 0)] + [2048 * 1000.0, 0.0]


def _resnet50_convolutions() -> Iterator[tuple[int, int, int, int]]:
    """Kernel, channels in and out, and the side of the result, for images of 224 x 224."""
    yield 7, 3, 64, 112
    channels = 64
    for blocks, width, side in ((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7)):
        for block in range(blocks):
            yield 1, channels, width, side
            yield 3, width, width, side
            yield 1, width, 4 * width, side
            if block == 0:
                yield 1, channels, 4 * width, side
            channels = 4 * width


def bert_base() -> Shapes:
    """BERT-base, uncased (Devlin et al. 2018): embeddings, 12 layers, pooler."""
    return _bert(768, 12)


def bert_large() -> Shapes:
    """BERT-large, uncased (Devlin et al. 2018): embeddings, 24 layers, pooler."""
    return _bert(1024, 24)


def _bert(width: int, layers: int) -> Shapes:
    inner = 4 * width
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


def mlp7() -> Shapes:
    """Seven Dense layers: 784 inputs, six hidden layers of 2048, 10 classes."""
    widths = [784, *[2048] * 6, 10]
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
