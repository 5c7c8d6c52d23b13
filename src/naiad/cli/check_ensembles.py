"""The ensembles of ``naiad check``: their graphs, against the models that were checked before them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from naiad.config.complete import is_ensemble
from naiad.config.spec import ModelSpec
from naiad.errors import ModelLoadError
from naiad.lifecycle.ensembles.dependencies import members_of, read_ensemble
from naiad.lifecycle.state.candidate import Candidate
from naiad.scheduling.ensemble.graph import EnsembleError, build


@dataclass(slots=True)
class CheckedModels:
    """The checked models: the specifications of their versions, none for a model that fails."""

    _specs: dict[str, dict[int, ModelSpec]] = field(default_factory=dict)

    def note(self, name: str) -> None:
        """Add a model to the checked ones."""
        self._specs.setdefault(name, {})

    def keep(self, name: str, version: int, spec: ModelSpec) -> None:
        """Record the specification of a version that would load."""
        self._specs.setdefault(name, {})[version] = spec

    def check_ensemble(self, found: Candidate, version: int) -> Any:
        """Check a version of an ensemble, record it, and return its completed configuration.

        Raises:
            NaiadError: it could not be loaded with the checked models.
        """
        spec, config = read_ensemble(found.source, version, found.read)
        unknown = [member for member in members_of(spec) if member not in self._specs]
        if unknown:
            raise EnsembleError(
                f"ensemble {spec.name} contains models that are not available or ambiguous: {', '.join(unknown)}; "
                "check them together, with the path of their repository"
            )
        graph = build(spec, list(self._members(spec)))
        self.keep(found.source.name, version, replace(spec, decoupled=graph.is_decoupled, depth=graph.depth))
        config.model_transaction_policy.decoupled = graph.is_decoupled
        return config

    def _members(self, spec: ModelSpec) -> Iterator[ModelSpec]:
        """The model of each step."""
        for step in () if spec.ensemble is None else spec.ensemble.steps:
            versions = self._specs[step.model]
            if not versions:
                raise EnsembleError(f"ensemble '{spec.name}' depends on '{step.model}' which has problems of its own")
            if step.version is not None and step.version not in versions:
                raise EnsembleError(
                    f"ensemble '{spec.name}' depends on '{step.model}' whose required version {step.version} is not "
                    "loaded."
                )
            yield versions[max(versions) if step.version is None else step.version]


def in_order(ensembles: Iterable[Candidate]) -> tuple[list[Candidate], list[Candidate]]:
    """The ensembles, each after its members; and the ensembles of cycles, which have no order."""
    waiting = {found.source.name: found for found in ensembles}
    ordered: list[Candidate] = []
    while able := [found for found in waiting.values() if waiting.keys().isdisjoint(_parts(found))]:
        ordered += able
        for found in able:
            del waiting[found.source.name]
    return ordered, list(waiting.values())


def circular(name: str) -> ModelLoadError:
    """The error of an ensemble that contains itself."""
    return EnsembleError(f"circular dependency between ensembles: {name} -> ... -> {name}")


def is_made_of_others(found: Candidate) -> bool:
    """Whether a model is an ensemble."""
    return is_ensemble(found.read.config)


def _parts(found: Candidate) -> set[str]:
    return {step.model_name for step in found.read.config.ensemble_scheduling.step}
