"""Name, platform, backend, batch size and version policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from naiad.config.complete import ENSEMBLE, FORMATS, PLATFORMS
from naiad.config.parsing.suggest import did_you_mean
from naiad.config.problems import Violation

# Backends that take models of a stated platform only; any other backend goes without.
_WITH_PLATFORM = frozenset(PLATFORMS.values())


def violations(config: Any, directory: str | None = None) -> Iterator[Violation]:
    """Rules of the top level. ``directory`` is the name of the model's folder, None for a model without one."""
    yield from _name(config, directory)
    yield from _platform(config)
    if config.max_batch_size < 0:
        message = f"'max_batch_size' must be non-negative value for {config.name}"
        yield Violation("max_batch_size", message)
    yield from _version_policy(config)


def _name(config: Any, directory: str | None) -> Iterator[Violation]:
    if not config.name:
        yield Violation("name", "model configuration must specify 'name'")
    elif directory is not None and config.name != directory:
        yield Violation(
            "name",
            f"unexpected directory name '{directory}' for model '{config.name}', directory name must equal model name",
        )


def _platform(config: Any) -> Iterator[Violation]:
    name, platform, backend = config.name, config.platform, config.backend
    if not platform and not backend and not config.HasField("ensemble_scheduling"):
        yield Violation("", f"must specify 'platform' or 'backend' for '{name}'")
    elif platform == ENSEMBLE:
        if backend:
            yield Violation(
                "backend", f"Ensemble model '{name}' must have platform type 'ensemble' and empty backend type"
            )
    elif not backend and platform:
        hint = did_you_mean(platform, [*PLATFORMS, ENSEMBLE])
        yield Violation("platform", f"unexpected platform type '{platform}' for {name}{hint}")
    elif PLATFORMS.get(platform) != _platform_backend(backend):
        hint = _expected_platform(backend)
        yield Violation("platform", f"unexpected 'platform' and 'backend' pair, got:{platform}, {backend}{hint}")


def _platform_backend(backend: str) -> str | None:
    return backend if backend in _WITH_PLATFORM else None


def _expected_platform(backend: str) -> str:
    expected = [f.platform for f in FORMATS if f.backend == backend and f.platform]
    return f", expected platform {' or '.join(expected)}" if expected else ""


def _version_policy(config: Any) -> Iterator[Violation]:
    choice = config.version_policy.WhichOneof("policy_choice")
    if choice is None:
        yield Violation("version_policy", f"must specify 'version policy' for {config.name}")
    elif choice == "specific":
        for index, version in enumerate(config.version_policy.specific.versions):
            if version < 1:
                message = f"found the version {version} in the version policy of {config.name}, expected 1 or more"
                yield Violation(f"version_policy.specific.versions[{index}]", message)
