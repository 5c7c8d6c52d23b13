"""Naiad beside other inference servers on one network, as applications would use them."""

from __future__ import annotations

from collections.abc import Iterator

from ..figures import Figure
from ..peers.compare import compare
from ..settings import Settings


def resnet50(settings: Settings) -> Iterator[Figure]:
    """On a ResNet-50: the network is nearly all the time, and a row has 600 KB."""
    return compare(settings, "resnet50")


def small(settings: Settings) -> Iterator[Figure]:
    """On a dense network of about a millisecond: what a server adds shows."""
    return compare(settings, "small")
