"""Inputs and outputs that the server makes from a whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.messages import enum_name
from naiad.config.problems import Violation


def violations(config: Any) -> Iterator[Violation]:
    """Rules of ``batch_input`` and ``batch_output``."""
    inputs = {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    for index, item in enumerate(config.batch_input):
        path = f"batch_input[{index}]"
        yield from _sources(item, path, "batch input", inputs)
        if enum_name(item, "data_type") not in ("TYPE_INT32", "TYPE_FP32"):
            yield Violation(f"{path}.data_type", "batch input data type must be TYPE_INT32 or TYPE_FP32")
    seen: set[str] = set()
    for index, item in enumerate(config.batch_output):
        path = f"batch_output[{index}]"
        yield from _sources(item, path, "batch output", inputs)
        yield from _targets(item, path, outputs, seen)


def _sources(item: Any, path: str, what: str, inputs: set[str]) -> Iterator[Violation]:
    if len(item.source_input) != 1:
        kind = enum_name(item, "kind")
        yield Violation(path, f"{what} kind '{kind}' expects 1 source input, got {len(item.source_input)}")
    for position, name in enumerate(item.source_input):
        if name not in inputs:
            yield Violation(f"{path}.source_input[{position}]", f"unknown source input name '{name}'")


def _targets(item: Any, path: str, outputs: set[str], seen: set[str]) -> Iterator[Violation]:
    for position, name in enumerate(item.target_name):
        place = f"{path}.target_name[{position}]"
        if name not in outputs:
            yield Violation(place, f"unknown target output name '{name}'")
        if name in seen:
            yield Violation(place, f"target output name '{name}' can only be specified once")
        seen.add(name)
