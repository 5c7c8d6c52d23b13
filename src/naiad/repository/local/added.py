"""Repositories that are added while the server runs, each with one model that goes by another name than its folder."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from naiad.config.read import read_config
from naiad.config.source import ModelSource
from naiad.errors import AlreadyExistsError, InvalidArgumentError, NaiadError
from naiad.repository.local.layout import Listing, duplicate, is_model_directory, scan
from naiad.repository.local.namespaces import in_namespace

logger = logging.getLogger("naiad")


@dataclass(frozen=True, slots=True)
class AddedRepository:
    """A repository at ``place``, whose ``folder`` holds the model ``name``; other folders go by their own names."""

    place: Path
    folder: str
    name: str

    def listing(self, only: str | None = None) -> Listing:
        """Its models, or ``only`` the one of that name; errors as ``scan``."""
        found = scan((self.place,), self.folder if only == self.name else only)
        # A folder of that very name would be a second model of it.
        models = [self._named(source) for source in found.models.values() if source.name in self._folders(found)]
        problems = (replace(p, model=self.name) if p.model == self.folder else p for p in found.problems)
        return Listing({source.name: source for source in models}, tuple(problems))

    def _folders(self, found: Listing) -> Collection[str]:
        return found.models.keys() - {self.name} | {self.folder}

    def _named(self, source: ModelSource) -> ModelSource:
        return replace(source, name=self.name, is_renamed=True) if source.name == self.folder else source


class AddedRepositories:
    """All of them. Changed on the event loop, and read by threads, which see all of a change or nothing."""

    def __init__(self) -> None:
        self._all: tuple[AddedRepository, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, added: AddedRepository, names_repeat: bool) -> None:
        """Add a repository; with ``names_repeat`` another one may have a model of the same name.

        Raises:
            AlreadyExistsError: it was added before, or its model's name is taken. The texts are the reference's own.
        """
        for other in self._all:
            if other.place == added.place:
                raise AlreadyExistsError(f"model repository '{added.place}' has already been registered")
            if other.name == added.name and not names_repeat:
                raise AlreadyExistsError(
                    f"failed to register '{added.name}', there is a conflicting mapping for '{added.name}'"
                )
        self._all = (*self._all, added)

    def remove(self, added: AddedRepository) -> None:
        """Take a repository out, if it is there."""
        self._all = tuple(other for other in self._all if other != added)

    def joined(self, own: Listing, only: str | None = None) -> Listing:
        """``own`` and the models of all added repositories; a name in several places is a problem of that model."""
        found = {name: [source] for name, source in own.models.items()}
        problems = list(own.problems)
        for listing in self._listings(only):
            problems += listing.problems
            for name, source in listing.models.items():
                found.setdefault(name, []).append(source)
        problems += [duplicate(name, sources) for name, sources in found.items() if len(sources) > 1]
        unavailable = {problem.model for problem in problems if problem.fatal}
        return Listing({n: s[0] for n, s in sorted(found.items()) if n not in unavailable}, tuple(problems))

    def in_namespaces(self) -> Iterator[Listing]:
        """The models of each repository by their keys."""
        for added, listing in self._readable(None):
            yield in_namespace(listing, str(added.place))

    def _listings(self, only: str | None) -> Iterator[Listing]:
        return (listing for _, listing in self._readable(only))

    def _readable(self, only: str | None) -> Iterator[tuple[AddedRepository, Listing]]:
        for added in self._all:
            try:
                yield added, added.listing(only)
            except NaiadError as error:
                # Its files may be gone before it is removed; the other models must not suffer from that.
                logger.warning("%s", error)


def added_repository(folder: Path, name: str) -> AddedRepository:
    """The repository that ``folder`` is, or that it lies in when it is a model itself; its model goes by ``name``.

    Of several models it is the ensemble that is no step of another one. Reads files: for threads.

    Raises:
        InvalidArgumentError: there is no such folder, or no such model in it.
        NaiadError: as ``scan``.
    """
    if not folder.is_dir():
        raise InvalidArgumentError(f"failed to register '{folder}', repository not found")
    if is_model_directory(folder):
        return AddedRepository(folder.parent, folder.name, name)
    models = list(scan((folder,)).models.values())
    chosen = models if len(models) == 1 else _outer_ensembles(models)
    if len(chosen) != 1:
        raise InvalidArgumentError(
            f"'{folder}' holds {len(models)} models and {len(chosen)} ensembles that are no step of another one, "
            "expected one model, or one such ensemble with its steps"
        )
    return AddedRepository(folder, chosen[0].name, name)


def _outer_ensembles(models: Sequence[ModelSource]) -> list[ModelSource]:
    steps: dict[str, set[str]] = {}
    for source in models:
        try:
            config = read_config(source).config
        except NaiadError:
            # It is no ensemble that could be loaded.
            continue
        if config.platform == "ensemble":
            steps[source.name] = {step.model_name for step in config.ensemble_scheduling.step}
    inner = set().union(*steps.values())
    return [source for source in models if source.name in steps and source.name not in inner]
