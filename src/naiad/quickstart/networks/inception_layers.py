"""The layers of Inception v3 (Szegedy et al., 2015), as in the frozen graph of 2016 that the tutorials fetch."""

from __future__ import annotations

from typing import Final

from naiad.quickstart.networks.layers import Layer, Layers

CLASSES: Final = 1001
IMAGE_SIZE: Final = 299


def inception_v3(layers: Layers, image: Layer) -> Layer:
    """The scores of ``CLASSES`` classes for images of 299 by 299 with three channels."""
    found = _stem(layers, image)
    for pooled in (32, 64, 64):
        found = _block_35(layers, found, pooled)
    found = _to_17(layers, found)
    for inner in (128, 160, 160, 192):
        found = _block_17(layers, found, inner)
    found = _to_8(layers, found)
    for _ in range(2):
        found = _block_8(layers, found)
    return layers.classify(found, CLASSES)


def _stem(layers: Layers, image: Layer) -> Layer:
    found = layers.convolution(image, 32, (3, 3), 2, "VALID")
    found = layers.convolution(found, 32, (3, 3), 1, "VALID")
    found = layers.convolution(found, 64, (3, 3))
    found = layers.max_pool(found, 3, 2, "VALID")
    found = layers.convolution(found, 80, (1, 1), 1, "VALID")
    found = layers.convolution(found, 192, (3, 3), 1, "VALID")
    return layers.max_pool(found, 3, 2, "VALID")


def _chain(layers: Layers, source: Layer, *steps: tuple[int, tuple[int, int]]) -> Layer:
    for channels, kernel in steps:
        source = layers.convolution(source, channels, kernel)
    return source


def _pooled(layers: Layers, source: Layer, channels: int) -> Layer:
    return layers.convolution(layers.average_pool(source, 3, 1, "SAME"), channels, (1, 1))


def _block_35(layers: Layers, source: Layer, pooled: int) -> Layer:
    """A block on 35 by 35 values."""
    return layers.join(
        [
            _chain(layers, source, (64, (1, 1))),
            _chain(layers, source, (48, (1, 1)), (64, (5, 5))),
            _chain(layers, source, (64, (1, 1)), (96, (3, 3)), (96, (3, 3))),
            _pooled(layers, source, pooled),
        ]
    )


def _to_17(layers: Layers, source: Layer) -> Layer:
    double = _chain(layers, source, (64, (1, 1)), (96, (3, 3)))
    return layers.join(
        [
            layers.convolution(source, 384, (3, 3), 2, "VALID"),
            layers.convolution(double, 96, (3, 3), 2, "VALID"),
            layers.max_pool(source, 3, 2, "VALID"),
        ]
    )


def _block_17(layers: Layers, source: Layer, inner: int) -> Layer:
    """A block on 17 by 17 values, whose kernels of 7 by 7 are split in two."""
    flat, tall = (1, 7), (7, 1)
    double = [(inner, (1, 1)), (inner, tall), (inner, flat), (inner, tall), (192, flat)]
    return layers.join(
        [
            _chain(layers, source, (192, (1, 1))),
            _chain(layers, source, (inner, (1, 1)), (inner, flat), (192, tall)),
            _chain(layers, source, *double),
            _pooled(layers, source, 192),
        ]
    )


def _to_8(layers: Layers, source: Layer) -> Layer:
    first = _chain(layers, source, (192, (1, 1)))
    second = _chain(layers, source, (192, (1, 1)), (192, (1, 7)), (192, (7, 1)))
    return layers.join(
        [
            layers.convolution(first, 320, (3, 3), 2, "VALID"),
            layers.convolution(second, 192, (3, 3), 2, "VALID"),
            layers.max_pool(source, 3, 2, "VALID"),
        ]
    )


def _block_8(layers: Layers, source: Layer) -> Layer:
    """A block on 8 by 8 values, whose kernels of 3 by 3 are split side by side."""
    first = _chain(layers, source, (384, (1, 1)))
    second = _chain(layers, source, (448, (1, 1)), (384, (3, 3)))
    return layers.join(
        [
            _chain(layers, source, (320, (1, 1))),
            *(layers.convolution(first, 384, kernel) for kernel in ((1, 3), (3, 1))),
            *(layers.convolution(second, 384, kernel) for kernel in ((1, 3), (3, 1))),
            _pooled(layers, source, 192),
        ]
    )
