"""Ensembles: the part of their rules that needs no look at the models they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from naiad.config.complete import ENSEMBLE
from naiad.config.ensemble import UNLESS, WHEN, are_exclusive
from naiad.config.problems import Violation

MAX_STEPS: Final = 1024
"""Steps of one ensemble: each costs a request to it memory."""
_AT = "ensemble_scheduling"
_EXCLUSIVE: Final = f"; two steps may write it if one runs '{WHEN}' and the other '{UNLESS}' the same tensor is true"
"""Behind the reference's text where a step has a condition, which the reference does not know."""


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
    steps = config.ensemble_scheduling.step
    if not steps:
        yield Violation(_AT, f"must specify 'step' for ensemble '{config.name}'")
    if len(steps) > MAX_STEPS:
        text = f"ensemble '{config.name}' has {len(steps)} steps, more than {MAX_STEPS}: divide it into several"
        yield Violation(_AT, text)
        return
    inputs = {tensor.name for tensor in config.input}
    writers: dict[str, list[Any]] = {}
    for index, step in enumerate(steps):
        path = f"{_AT}.step[{index}]"
        for field in ("model_name", "input_map", "output_map"):
            if not getattr(step, field):
                text = f"must specify '{field}' in step {index} of ensemble '{config.name}'"
                yield Violation(path, text)
        for tensor in sorted(step.output_map.values()):
            before = writers.setdefault(tensor, [])
            # Two steps of which one or the other runs may write the same.
            if tensor in inputs or not all(are_exclusive(step.input_map, other.input_map) for other in before):
                text = f"ensemble tensor '{tensor}' can appear in an output map only once for ensemble"
                hint = _EXCLUSIVE if any(map(_is_conditional, [step, *before])) else ""
                yield Violation(f"{path}.output_map", f"{text} '{config.name}' step {index}{hint}")
            before.append(step)


def _is_conditional(step: Any) -> bool:
    return WHEN in step.input_map or UNLESS in step.input_map


def _flow(config: Any) -> Iterator[Violation]:
    """Every tensor must be written once and read at least once."""
    steps = config.ensemble_scheduling.step
    read = {tensor for step in steps for tensor in step.input_map.values()}
    written = {tensor for step in steps for tensor in step.output_map.values()}
    inputs = [tensor.name for tensor in config.input]
    outputs = [tensor.name for tensor in config.output]
    for index, name in enumerate(inputs):
        if name not in read:
            # The lone quote behind the ensemble's name is the reference's.
            yield Violation(f"input[{index}]", f"ensemble input '{name}' for ensemble {config.name}' is not used")
    for index, name in enumerate(outputs):
        if name not in written:
            yield Violation(f"output[{index}]", f"ensemble output '{name}' for ensemble {config.name}' is not used")
    yield from _unconnected(config, set(inputs))
    for name in sorted(written - read - set(outputs)):
        yield Violation(_AT, f"ensemble tensor '{name}' is unused in ensemble '{config.name}'")


def _unconnected(config: Any, known: set[str]) -> Iterator[Violation]:
    """Outputs that are never written: a step before them cannot run, for lack of an input's writer or in a cycle."""
    waiting = [
        (frozenset(step.input_map.values()), frozenset(step.output_map.values()))
        for step in config.ensemble_scheduling.step
    ]
    # In rounds, since the steps of a configuration may stand in any order.
    while able := [step for step in waiting if known.issuperset(step[0])]:
        waiting = [step for step in waiting if not known.issuperset(step[0])]
        known = known.union(*(outputs for _, outputs in able))
    lacking = sorted(frozenset().union(*(inputs for inputs, _ in waiting)) - known)
    if not lacking:
        return
    late = sorted(frozenset().union(*(outputs for _, outputs in waiting)))
    outputs = [(i, tensor.name) for i, tensor in enumerate(config.output) if tensor.name in late]
    for index, name in outputs or [(-1, late[0] if late else "")]:
        path = _AT if index < 0 else f"output[{index}]"
        text = f"output '{name}' for ensemble '{config.name}' is not written: at least one of its depending tensors, "
        yield Violation(path, f"{text}'{_first(config, name, lacking)}', is not connected")


def _first(config: Any, output: str, lacking: list[str]) -> str:
    """Of the tensors that no step can write, one that ``output`` depends on: the first that is no step's output at all,
    where there is one."""
    writers: dict[str, list[Any]] = {}
    for step in config.ensemble_scheduling.step:
        for tensor in step.output_map.values():
            writers.setdefault(tensor, []).append(step)
    found, waiting = {output}, [output]
    while waiting:
        for step in writers.get(waiting.pop(), []):
            fresh = set(step.input_map.values()) - found
            found |= fresh
            waiting += fresh
    before = [tensor for tensor in lacking if tensor in found] or lacking
    return next((tensor for tensor in before if tensor not in writers), before[-1])
