"""The catalog of everything a server serves, read again for each load of a model."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from naiad.config.source import ModelSource
from naiad.errors import ModelLoadError, NaiadError, StoreError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.local.added import AddedRepositories
from naiad.repository.local.discover import discover
from naiad.repository.local.layout import IN_TWO, Listing, check_model_name, model_directory, scan
from naiad.repository.local.namespaces import in_namespace, namespace_of, short_name

if TYPE_CHECKING:
    from naiad.repository.local.temporary_folder import ModelFolder
    from naiad.repository.remote.repository import RemoteModel, RemoteRepository

logger = logging.getLogger("naiad")


@dataclass(frozen=True, slots=True)
class Obtained:
    """A model on this machine; ``folder`` is released once it is not used any more."""

    source: ModelSource
    folder: ModelFolder | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """All models before those of remote repositories are fetched.

    Attributes:
        local: the models in folders.
        remote: the models in remote repositories, by name.
        unavailable: the reason by name, for the models that cannot be loaded.
    """

    local: Listing
    remote: Mapping[str, RemoteModel]
    unavailable: Mapping[str, str]

    @property
    def models(self) -> Mapping[str, ModelSource | RemoteModel]:
        """The models that can be loaded, by name."""
        found: dict[str, ModelSource | RemoteModel] = {**self.local.models, **self.remote}
        return {name: found[name] for name in sorted(found) if name not in self.unavailable}

    @property
    def names(self) -> frozenset[str]:
        """The names of all models."""
        return frozenset(self.models) | frozenset(self.unavailable)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The ``repositories`` and ``paths`` as ``discover`` takes them. Its methods read folders: for threads only.

    With ``has_namespaces`` each of them is a namespace: models are known by their keys, so that names may repeat.
    ``remote`` are the repositories elsewhere, each of them a namespace by its address. ``close`` is called when no
    thread asks any more. ``added`` has the repositories that come and go while the server runs.
    """

    repositories: tuple[Path, ...] = ()
    paths: tuple[Path, ...] = ()
    has_namespaces: bool = False
    remote: tuple[RemoteRepository, ...] = ()
    close: Callable[[], None] = lambda: None
    added: AddedRepositories = field(default_factory=AddedRepositories)

    def listing(self) -> Listing:
        """All models on this machine. Raises the errors of ``discover``."""
        if not self.has_namespaces:
            return self._discovered()
        listings = [*(self._listing_of(place) for place in self._places()), *self.added.in_namespaces()]
        models = {key: source for listing in listings for key, source in listing.models.items()}
        return Listing(models, tuple(problem for listing in listings for problem in listing.problems))

    def _discovered(self, only: str | None = None) -> Listing:
        found = discover(self.repositories, self.paths, only)
        return self.added.joined(found, only) if self.added else found

    def places(self) -> Iterator[tuple[Path, Listing | None, str]]:
        """Each folder and path on this machine by itself, so that an unreadable one does not affect the others.

        Yields:
            The place, its models and "", or the place, None and the reason why it cannot be read.
        """
        for place in self._places():
            try:
                yield place, self._listing_of(place), ""
            except (NaiadError, OSError) as error:
                yield place, None, str(error)

    def remote_places(self) -> Iterator[tuple[RemoteUri, Mapping[str, RemoteModel] | None, str]]:
        """Each remote repository by itself, with the files of its models."""
        for repository in self.remote:
            try:
                yield repository.uri, self._named(repository, repository.present()), ""
            except (NaiadError, OSError) as error:
                yield repository.uri, None, str(error)

    def _named(self, repository: RemoteRepository, models: Mapping[str, RemoteModel]) -> Mapping[str, RemoteModel]:
        if not self.has_namespaces:
            return models
        found = [replace(model, namespace=str(repository.uri)) for model in models.values()]
        return {model.key: model for model in found}

    def _places(self) -> list[Path]:
        by_place: dict[str, Path] = {}
        for place in (*self.repositories, *self.paths):
            # A place given twice would make each of its models ambiguous.
            by_place.setdefault(os.path.realpath(place), place)
        return list(by_place.values())

    def _listing_of(self, place: Path) -> Listing:
        listing = scan((place,)) if place in self.repositories else discover((), (place,))
        return in_namespace(listing, str(place)) if self.has_namespaces else listing

    def keys(self, name: str) -> list[str]:
        """The keys of the models of a name, where there are namespaces. Raises the errors of ``outline``."""
        check_model_name(name)
        return sorted(key for key in self.names() if short_name(key) == name)

    def outline(self, is_whole: bool = False) -> Outline:
        """All models; ``is_whole`` says that most of them will be obtained.

        Raises:
            OptionError: a repository cannot be read, or two paths hold a model of the same name.
            StoreError: a remote repository cannot be read.
            NaiadError: a path is no model.
        """
        local = self.listing()
        unavailable = dict(local.unavailable)
        found: dict[str, RemoteModel] = {}
        for repository in self.remote:
            for name, model in self._named(repository, repository.models(is_whole)).items():
                if name in found or name in local.models or name in local.unavailable:
                    unavailable[name] = in_two(name, str(model.uri))
                found[name] = model
        return Outline(local, found, unavailable)

    def names(self) -> frozenset[str]:
        """The names of all models, unloadable ones included. Raises the errors of ``outline``."""
        return self.outline().names

    def obtain(self, name: str, may_be_old: bool = True) -> Obtained:
        """The model ``name`` as it is now, fetched from a remote repository where necessary.

        With ``may_be_old`` the mirror's last listing stands in for a store that does not respond.

        Raises:
            NaiadError: the model cannot be found (see ``find``) or fetched (see ``fetched``).
        """
        if not self.remote:
            return Obtained(self.find(name))
        if self.has_namespaces:
            return self._obtain_key(name, may_be_old)
        check_model_name(name)
        local = self._discovered(only=name)
        is_local = name in local.models or name in local.unavailable
        models = self._remote_models(name, may_be_old, is_local)
        if not models:
            # ``find`` also has the reason where the model cannot be loaded.
            return Obtained(self.find(name))
        if len(models) > 1 or is_local:
            raise ModelLoadError(in_two(name, str(models[0].uri)))
        return fetched(models[0])

    def _obtain_key(self, key: str, may_be_old: bool) -> Obtained:
        namespace, name = namespace_of(key), short_name(key)
        check_model_name(name)
        for repository in self.remote:
            if namespace == str(repository.uri) and (model := repository.find(name, may_be_old)) is not None:
                return fetched(replace(model, namespace=namespace))
        return Obtained(self.find(key))

    def _remote_models(self, name: str, may_be_old: bool, is_local: bool) -> Sequence[RemoteModel]:
        """The models of that name. An unreadable repository matters only when no other has the model."""
        found: list[RemoteModel] = []
        problems: list[StoreError] = []
        for repository in self.remote:
            try:
                model = repository.find(name, may_be_old)
            except StoreError as error:
                problems.append(error)
                continue
            if model is not None:
                found.append(model)
        if problems and not found and not is_local:
            raise problems[0]
        for problem in problems:
            logger.warning("whether model '%s' lies there as well is not known: %s", name, problem)
        return found

    def find(self, name: str) -> ModelSource:
        """The present place of the model ``name`` on this machine.

        Raises:
            ModelLoadError: it lies nowhere, in more than one repository, or its folder cannot be read.
            InvalidArgumentError: there can be no model of that name.
            OptionError: a repository is gone.
        """
        check_model_name(short_name(name) if self.has_namespaces else name)
        listing = self.listing() if self.has_namespaces else self._discovered(only=name)
        source = listing.models.get(name)
        if source is not None:
            return source
        reason = listing.unavailable.get(name)
        raise ModelLoadError(reason or f"there is no model of the name '{name}' in what this server serves")


def open_catalog(
    repositories: Sequence[Path | RemoteUri],
    paths: Sequence[Path | RemoteUri],
    mirror: str,
    mirror_size: int,
    has_namespaces: bool = False,
) -> Catalog:
    """The catalog of local folders and of addresses; no store is read yet.

    ``mirror`` and ``mirror_size`` are ``--model-repository-mirror`` and its size.

    Raises:
        OptionError: an address or its mirror cannot be used.
    """
    if all(isinstance(place, Path) for place in (*repositories, *paths)):
        return Catalog(_local(repositories), _local(paths), has_namespaces)
    # Imported here: a server with local folders only does not pay for it.
    from naiad.repository.remote.opening import Mirrors, open_repository

    mirrors = Mirrors(mirror, mirror_size)
    # An address given twice is one repository, as a folder is.
    remote = [open_repository(uri, mirrors) for uri in dict.fromkeys(repositories) if isinstance(uri, RemoteUri)]
    remote += [
        open_repository(uri, mirrors, may_be_model=True) for uri in dict.fromkeys(paths) if isinstance(uri, RemoteUri)
    ]
    return Catalog(_local(repositories), _local(paths), has_namespaces, tuple(remote), mirrors.close)


def _local(places: Sequence[Path | RemoteUri]) -> tuple[Path, ...]:
    return tuple(place for place in places if isinstance(place, Path))


def fetched(model: RemoteModel) -> Obtained:
    """The files of ``model`` on this machine.

    Raises:
        StoreError: they cannot be fetched.
        ModelLoadError: they are no model.
    """
    check_model_name(model.name)
    view = model.fetch()
    try:
        listing = model_directory(view.path)
        reason = listing.unavailable.get(model.name)
        if reason is not None:
            raise ModelLoadError(reason)
        return Obtained(replace(listing.models[model.name], namespace=model.namespace), view)
    except BaseException:
        view.release()
        raise


def in_two(name: str, place: str) -> str:
    """The error for a model that is at ``place``, the address of a repository, and in another one too."""
    return f"{IN_TWO}: '{place}' and another one have a model '{name}'; keep it in one of them"
