"""Rules of dynamic batching, and of the response cache with other sections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.freeze import MAX_WAIT, max_wait_ns
from naiad.config.messages import enum_name
from naiad.config.problems import Violation

_AT = "dynamic_batching"


def violations(config: Any) -> Iterator[Violation]:
    """Rules of ``dynamic_batching`` and ``response_cache``."""
    if config.HasField("dynamic_batching"):
        yield from _preferred_sizes(config)
        yield from _priorities(config)
        if config.dynamic_batching.preserve_ordering:
            yield from _ordering(config)
    yield from _longest_wait(config)
    yield from _cache(config)


def _preferred_sizes(config: Any) -> Iterator[Violation]:
    for index, size in enumerate(config.dynamic_batching.preferred_batch_size):
        path = f"{_AT}.preferred_batch_size[{index}]"
        if size <= 0:
            message = f"dynamic batching preferred size must be positive for {config.name}, found {size}"
            yield Violation(path, message)
        elif size > config.max_batch_size:
            yield Violation(
                path,
                f"dynamic batching preferred size must be <= max batch size for {config.name}, "
                f"found {size} with max_batch_size {config.max_batch_size}",
            )


def _priorities(config: Any) -> Iterator[Violation]:
    batching = config.dynamic_batching
    levels = batching.priority_levels
    if levels == 0:
        return
    if not 1 <= batching.default_priority_level <= levels:
        message = f"default priority level must be in range [1, {levels}] for {config.name}"
        yield Violation(f"{_AT}.default_priority_level", message)
    for level in sorted(batching.priority_queue_policy):
        if not 1 <= level <= levels:
            message = f"priority queue policy must have priority level in range [1, {levels}] for {config.name}"
            yield Violation(f'{_AT}.priority_queue_policy["{level}"]', message)


def _longest_wait(config: Any) -> Iterator[Violation]:
    try:
        max_wait_ns(config)
    except ValueError as error:
        message = f"parameter '{MAX_WAIT}' of {config.name} is \"{error}\", expected a whole number of microseconds"
        yield Violation(f'parameters["{MAX_WAIT}"].string_value', message)
        return
    if MAX_WAIT in config.parameters and config.dynamic_batching.priority_levels < 2:
        message = f"parameter '{MAX_WAIT}' of {config.name} needs 'dynamic_batching.priority_levels' of 2 or more"
        yield Violation(f'parameters["{MAX_WAIT}"]', message)


def _ordering(config: Any) -> Iterator[Violation]:
    batching = config.dynamic_batching
    if batching.priority_levels > 1:
        message = f"Only one priority level is allowed when 'preserve_ordering' is true for {config.name}"
        yield Violation(f"{_AT}.priority_levels", message)
    message = f"Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for {config.name}"
    if enum_name(batching.default_queue_policy, "timeout_action") == "DELAY":
        yield Violation(f"{_AT}.default_queue_policy.timeout_action", message)
    for level in sorted(batching.priority_queue_policy):
        if enum_name(batching.priority_queue_policy[level], "timeout_action") == "DELAY":
            yield Violation(f'{_AT}.priority_queue_policy["{level}"].timeout_action', message)


def _cache(config: Any) -> Iterator[Violation]:
    if not config.response_cache.enable:
        return
    text = f"Response Cache does not currently support model {config.name} with "
    advice = "Please disable the response cache."
    if config.HasField("sequence_batching"):
        yield Violation("response_cache.enable", f"{text}sequence batching scheduler. {advice}")
    if config.model_transaction_policy.decoupled:
        yield Violation("response_cache.enable", f"{text}'decoupled' transaction policy. {advice}")
