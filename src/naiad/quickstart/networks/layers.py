"""The layers that a network is made of, whichever format it is written in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

Padding = Literal["SAME", "VALID"]


class Layer(NamedTuple):
    """What a layer gives: the name of its tensor in the graph, and its number of channels."""

    name: str
    channels: int


class Layers(Protocol):
    """Adds layers to a graph. A convolution has a bias and a ReLU."""

    def convolution(
        self, source: Layer, channels: int, kernel: tuple[int, int], stride: int = 1, padding: Padding = "SAME"
    ) -> Layer:
        """A convolution with a kernel of (height, width)."""
        ...

    def max_pool(self, source: Layer, size: int, stride: int, padding: Padding) -> Layer:
        """The largest of each ``size`` by ``size`` values."""
        ...

    def average_pool(self, source: Layer, size: int, stride: int, padding: Padding) -> Layer:
        """The mean of each ``size`` by ``size`` values."""
        ...

    def join(self, sources: Sequence[Layer]) -> Layer:
        """The channels of several layers behind each other."""
        ...

    def classify(self, source: Layer, classes: int) -> Layer:
        """The mean of each channel, then a fully connected layer: [rows, classes]."""
        ...
