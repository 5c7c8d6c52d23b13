"""Ensembles: the part of their rules that needs no look at the models they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.complete import ENSEMBLE
from naiad.config.problems import Violation

_AT = "ensemble_scheduling"


def violations(config: Any) -> Iterator[Violation]:
    """Rules of ``ensemble_scheduling``."""
    scheduled = config.HasField("ensemble_scheduling")
    if config.platform == ENSEMBLE and not scheduled:
        text = f"ensemble scheduling must be set for ensemble {config.name} whose platform is ensemble"
        yield Violation("platform", text)
    if not scheduled:
        return
    if config.platform != ENSEMBLE:
        text = f"ensemble scheduling cannot be set for model '{config.name}' whose platform is not ensemble"
        yield Violation(_AT, text)
    yield from _foreign_sections(config)
    yield from _steps(config)
    yield from _flow(config)


def _foreign_sections(config: Any) -> Iterator[Violation]:
    ensemble = f"for ensemble '{config.name}'"
    if config.instance_group:
        yield Violation("instance_group", f"instance group should not be specified {ensemble}")
    if config.HasField("optimization"):
        yield Violation("optimization", f"optimization should not be specified {ensemble}")
    if config.model_warmup:
        yield Violation("model_warmup", f"model_warmup can not be specified {ensemble}")


def _steps(config: Any) -> Iterator[Violation]:
    if not config.ensemble_scheduling.step:
        yield Violation(_AT, f"must specify 'step' for ensemble '{config.name}'")
    written = {tensor.name for tensor in config.input}
    for index, step in enumerate(config.ensemble_scheduling.step):
        path = f"{_AT}.step[{index}]"
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                text = f"must specify '{field}' in step {index} of ensemble '{config.name}'"
                yield Violation(path, text)
        for tensor in sorted(step.output_map.values()):
            if tensor in written:
                text = f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble"
                yield Violation(f"{path}.output_map", f"{text} '{config.name}' step {index}")
            written.add(tensor)


def _flow(config: Any) -> Iterator[Violation]:
    """Every tensor must be written once and read at least once."""
    steps = config.ensemble_scheduling.step
    read = {tensor for step in steps for tensor in step.input_map.values()}
    written = {tensor for step in steps for tensor in step.output_map.values()}
    inputs = [tensor.name for tensor in config.input]
    outputs = [tensor.name for tensor in config.output]
    for index, name in enumerate(inputs):
        if name not in read:
            yield Violation(f"input[{index}]", f"ensemble input '{name}' for ensemble {config.name}' is not used")
    for index, name in enumerate(outputs):
        if name not in written:
            yield Violation(f"output[{index}]", f"ensemble output '{name}' for ensemble {config.name}' is not used")
    for name in sorted(written - read - set(outputs)):
        yield Violation(_AT, f"ensemble tensor '{name}' is unused in ensemble '{config.name}'")
    for name in sorted(read - written - set(inputs)):
        text = f"ensemble tensor '{name}' of ensemble '{config.name}' is read by a step, but neither an input nor"
        yield Violation(_AT, f"{text} the output of a step")
