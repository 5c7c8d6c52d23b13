"""Bytes that arrive in pieces."""

from __future__ import annotations


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data, cut at these places; each counts round from the end to the beginning."""
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]
