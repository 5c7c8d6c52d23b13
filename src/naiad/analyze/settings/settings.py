"""The settings of an analysis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from naiad.analyze.settings.goal import Goal


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The settings of one model.

    Attributes:
        formats: other models of the repository that are the same network; the first one is the model itself.
        configurations: concrete configurations in place of a search; empty for a search.
        batch_sizes, concurrency, request_rate: empty where they are searched.
        flags: options of ``naiad perf`` as words.
    """

    name: str
    formats: tuple[str, ...] = ()
    cpu_only: bool = False
    configurations: tuple[Mapping[str, Any], ...] = ()
    batch_sizes: tuple[int, ...] = (1,)
    concurrency: tuple[int, ...] = ()
    request_rate: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    goal: Goal = field(default_factory=Goal)


@dataclass(frozen=True, slots=True)
class AnalyzeSettings:
    """Everything that was asked for.

    Attributes:
        command: profile or report.
        mode: online or offline.
        values: the other keys, by name.
        given: the keys that were given.
        models: those under load.
        composing: those that they call.
        server_flags: options of the server as words.
        report_configs: the configurations of detailed reports, each with the charts that its section adds.
        verbosity: -1 quiet, 0, 1 verbose.
    """

    command: str
    mode: str
    values: Mapping[str, Any]
    given: frozenset[str]
    models: tuple[ModelSettings, ...] = ()
    composing: tuple[ModelSettings, ...] = ()
    server_flags: tuple[str, ...] = ()
    server_environment: Mapping[str, str] = field(default_factory=dict)
    report_configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    verbosity: int = 0

    def __getitem__(self, key: str) -> Any:
        """The value of a key."""
        return self.values[key]

    @property
    def repository(self) -> Path:
        """The folder with the models."""
        return Path(self.values["model_repository"])
