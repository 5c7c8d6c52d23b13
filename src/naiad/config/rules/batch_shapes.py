"""Batches of unequal requests: ragged inputs, tensors made for a batch, padding, and the bounds of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.assembly import PadSpec
from naiad.config.batch_shapes import (
    BATCH_BYTES,
    BATCH_ERROR,
    FAIL,
    SPLIT,
    gets_requests_apart,
    max_batch_bytes,
    options_of,
)
from naiad.config.complete import is_ensemble
from naiad.config.messages import enum_name
from naiad.config.pad_calls import KEEP, PREFIX, PadCallError, read_pad, read_unpad
from naiad.config.parsing.suggest import did_you_mean
from naiad.config.problems import Violation
from naiad.tensor.dtypes import BY_CONFIG


def violations(config: Any) -> Iterator[Violation]:
    """Rules of ``allow_ragged_batch``, ``batch_input`` and ``batch_output`` beyond those of the reference, and of the
    parameters ``batching.<tensor>``, ``max_batch_bytes`` and ``batch_error``."""
    yield from _limits(config)
    yield from _unknown(config)
    if is_ensemble(config):
        return
    if not gets_requests_apart(config):
        yield from _needs_batches(config)
        yield from _made(config)
    yield from _padding(config)


def _limits(config: Any) -> Iterator[Violation]:
    try:
        max_batch_bytes(config)
    except ValueError as error:
        yield _parameter(config, BATCH_BYTES, f'is "{str(error)[:64]}", expected a number of bytes of at least 1')
    if BATCH_BYTES in config.parameters and not config.HasField("dynamic_batching"):
        yield _parameter(config, BATCH_BYTES, "bounds batches, so it needs 'dynamic_batching'")
    if BATCH_ERROR in config.parameters:
        text = config.parameters[BATCH_ERROR].string_value
        if text.strip() not in (SPLIT, FAIL):
            yield _parameter(config, BATCH_ERROR, f'is "{text[:64]}", expected {SPLIT} or {FAIL}')
        elif text.strip() == SPLIT and config.model_transaction_policy.decoupled:
            yield _parameter(
                config, BATCH_ERROR, "cannot be split for a decoupled model, which may have sent responses already"
            )


def _unknown(config: Any) -> Iterator[Violation]:
    names = [tensor.name for tensor in (*config.input, *config.output)]
    for key in sorted(config.parameters):
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX)
        if is_ensemble(config):
            yield _parameter(config, key, "has no effect for an ensemble: give it to the model that is to batch")
        elif name not in names:
            yield _parameter(config, key, f"names no input or output of the model{did_you_mean(name, names)}")


def _needs_batches(config: Any) -> Iterator[Violation]:
    if config.max_batch_size > 0:
        return
    for index, tensor in enumerate(config.input):
        if tensor.allow_ragged_batch:
            message = f"input '{tensor.name}' of {config.name} allows ragged batches, which needs a 'max_batch_size'"
            yield Violation(f"input[{index}].allow_ragged_batch", message)
    for field in ("batch_input", "batch_output"):
        if getattr(config, field):
            yield Violation(f"{field}[0]", f"'{field}' of {config.name} needs a 'max_batch_size'")


def _made(config: Any) -> Iterator[Violation]:
    inputs = {tensor.name: tensor for tensor in config.input}
    seen = set(inputs)
    for field in ("batch_input", "batch_output"):
        for index, item in enumerate(getattr(config, field)):
            for name in item.source_input:
                if name in inputs and inputs[name].optional:
                    yield Violation(
                        f"{field}[{index}].source_input[0]",
                        f"source input '{name}' of {config.name} is optional, and nothing can be made of an input that "
                        "is not given",
                    )
            for position, name in enumerate(item.target_name):
                if field == "batch_input":
                    yield from _made_name(config, name, f"{field}[{index}].target_name[{position}]", seen)


def _made_name(config: Any, name: str, path: str, seen: set[str]) -> Iterator[Violation]:
    if not name:
        yield Violation(path, f"a target of a batch input of {config.name} has no name")
    if name in seen:
        message = f"batch input '{name}' of {config.name} is given twice, or is an input that callers send"
        yield Violation(path, message)
    seen.add(name)


def _padding(config: Any) -> Iterator[Violation]:
    pads: dict[str, PadSpec] = {}
    names = {tensor.name for tensor in config.input}
    names.update(name for item in config.batch_input for name in item.target_name)
    for tensor in config.input:
        if (text := options_of(config, tensor.name)) is None:
            continue
        key = PREFIX + tensor.name
        if problem := _not_padded(config, tensor):
            yield _parameter(config, key, problem)
            continue
        try:
            pad = pads[tensor.name] = read_pad(text, tensor.dims, BY_CONFIG[enum_name(tensor, "data_type")])
        except (PadCallError, KeyError) as error:
            yield _parameter(config, key, f'is "{text[:64]}": {error}')
            continue
        if pad.mask in names:
            yield _parameter(config, key, f"makes the mask '{pad.mask}', which the model has as an input already")
        if pad.mask and tensor.optional:
            yield _parameter(config, key, f"makes the mask '{pad.mask}' of an input that is optional")
        if pad.mask:
            names.add(pad.mask)
    for tensor in config.output:
        yield from _unpadding(config, tensor, pads)


def _not_padded(config: Any, tensor: Any) -> str:
    """Why an input cannot be padded, "" when it can."""
    if gets_requests_apart(config):
        return "pads batches, and a Python model gets its requests apart: pad them in its execute()"
    if config.max_batch_size < 1:
        return "pads batches, so it needs a 'max_batch_size'"
    if config.HasField("sequence_batching"):
        return "pads batches of requests that are independent, and the model has 'sequence_batching'"
    if tensor.allow_ragged_batch:
        return "pads an input that has allow_ragged_batch, which puts its elements one behind the other: choose one"
    if tensor.HasField("reshape"):
        return "pads an input that has a 'reshape': give the shape that the model sees as its dims"
    if tensor.is_shape_tensor:
        return "pads a shape tensor, whose values would change"
    return ""


def _unpadding(config: Any, tensor: Any, pads: dict[str, PadSpec]) -> Iterator[Violation]:
    text = options_of(config, tensor.name)
    key = PREFIX + tensor.name
    if text is None:
        if pads and any(dim < 0 for dim in tensor.dims) and not _is_scattered(config, tensor.name):
            source = next(iter(pads))
            yield Violation(
                "output",
                f"output '{tensor.name}' of {config.name} has variable dims, and inputs are padded: say whether it is "
                f'to be cut, with the parameter \'{key}\': "unpad({source})", or "{KEEP}" if it is not',
            )
        return
    if tensor.name in {t.name for t in config.input} or text.strip() == KEEP:
        return
    if tensor.HasField("reshape") or _is_scattered(config, tensor.name):
        yield _parameter(config, key, "cuts an output that has a 'reshape' or is a batch output: choose one")
        return
    try:
        read_unpad(text, pads, tensor.dims)
    except PadCallError as error:
        yield _parameter(config, key, f'is "{text[:64]}": {error}')


def _is_scattered(config: Any, name: str) -> bool:
    return any(name in item.target_name for item in config.batch_output)


def _parameter(config: Any, key: str, problem: str) -> Violation:
    return Violation(f'parameters["{key}"]', f"parameter '{key}' of model '{config.name}' {problem}")
