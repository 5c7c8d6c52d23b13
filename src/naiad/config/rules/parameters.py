"""Names of ``parameters``: misspelt ones are errors, those without any effect are remarks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from naiad.config.known_parameters.every_model import BATCH_STRATEGY
from naiad.config.known_parameters.parameter import GPU, KnownParameter
from naiad.config.known_parameters.tables import find, known_parameters
from naiad.config.messages import enum_name
from naiad.config.problems import Violation
from naiad.spelling import nearest_spelling

# Higher than for fields: a repository may have keys that only its own tools read.
_NEAR: Final = 0.8


def violations(config: Any) -> Iterator[Violation]:
    """Unknown parameters of a framework's model that are close to a known one."""
    known = known_parameters(config.backend)
    for key in sorted(config.parameters) if known and not _has_strategy(config) else ():
        near = "" if find(key, known) else _nearest(key, known)
        if near:
            yield _at(key, config, f"is unknown to the backend '{config.backend}', did you mean '{near}'?")


def remarks(config: Any) -> Iterator[Violation]:
    """Parameters of a normalised configuration that have no effect: unknown ones, and ones that need something else."""
    known = known_parameters(config.backend)
    has_gpu = any(enum_name(group, "kind") == "KIND_GPU" for group in config.instance_group)
    for key in sorted(config.parameters) if known else ():
        found = find(key, known)
        if found is None and _has_strategy(config):
            continue
        if found is None:
            yield _at(key, config, f"is unknown to the backend '{config.backend}' and has no effect")
        elif found.needs == GPU and not has_gpu:
            yield _at(key, config, f"has no effect: it needs {GPU}, and no instance group of the model is on one")


def _has_strategy(config: Any) -> bool:
    """Whether the configuration names a batch strategy, which reads parameters of its own."""
    return BATCH_STRATEGY in config.parameters


def _nearest(key: str, known: tuple[KnownParameter, ...]) -> str:
    by_lower = {parameter.name.lower(): parameter.name for parameter in known if not parameter.name.endswith("*")}
    close = nearest_spelling(key.lower(), by_lower, _NEAR)
    return by_lower[close] if close else ""


def _at(key: str, config: Any, text: str) -> Violation:
    return Violation(f'parameters["{key}"]', f"parameter '{key}' of model '{config.name}' {text}")
