"""What a server was told to serve, looked at again whenever a model is to be loaded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from naiad.config.source import ModelSource
from naiad.errors import ModelLoadError, StoreError
from naiad.options.remote_uri import RemoteUri
from naiad.repository.discover import discover
from naiad.repository.layout import Listing, check_model_name, model_directory

if TYPE_CHECKING:
    from naiad.repository.remote.repository import RemoteModel, RemoteRepository

logger = logging.getLogger("naiad")


class Held(Protocol):
    """Files that stay while somebody holds them."""

    def hold(self) -> None:
        """One more uses them, beside somebody who does already."""

    def release(self) -> None:
        """One less uses them; may touch files, so it is for threads only."""


@dataclass(frozen=True, slots=True)
class Obtained:
    """A model that lies on this machine; ``folder`` is to be released once it is of no more use."""

    source: ModelSource
    folder: Held | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """All models before those of remote repositories are fetched.

    Attributes:
        local: what lies in folders.
        remote: the others by name.
        unavailable: reason by name, for the models that cannot be loaded.
    """

    local: Listing
    remote: Mapping[str, RemoteModel]
    unavailable: Mapping[str, str]

    @property
    def models(self) -> Mapping[str, ModelSource | RemoteModel]:
        """Those that can be tried, by name."""
        found: dict[str, ModelSource | RemoteModel] = {**self.local.models, **self.remote}
        return {name: found[name] for name in sorted(found) if name not in self.unavailable}

    @property
    def names(self) -> frozenset[str]:
        """The names of all."""
        return frozenset(self.models) | frozenset(self.unavailable)


@dataclass(frozen=True, slots=True)
class Catalog:
    """The ``repositories`` and ``paths`` as ``discover`` takes them. Its methods read folders: for threads only.

    ``remote`` are the repositories elsewhere; ``close`` is called when no thread asks any more.
    """

    repositories: tuple[Path, ...] = ()
    paths: tuple[Path, ...] = ()
    remote: tuple[RemoteRepository, ...] = ()
    close: Callable[[], None] = lambda: None

    def listing(self) -> Listing:
        """All models that lie on this machine; errors as ``discover``."""
        return discover(self.repositories, self.paths)

    def outline(self, is_whole: bool = False) -> Outline:
        """All models; ``is_whole`` says that most of them will be obtained.

        Raises:
            OptionError: a repository cannot be read, or two paths hold a model of the same name.
            StoreError: a remote repository cannot be read.
            NaiadError: as ``discover``.
        """
        local = self.listing()
        unavailable = dict(local.unavailable)
        found: dict[str, RemoteModel] = {}
        for repository in self.remote:
            for name, model in repository.models(is_whole).items():
                if name in found or name in local.models or name in local.unavailable:
                    unavailable[name] = _in_two(name, str(model.uri))
                found[name] = model
        return Outline(local, found, unavailable)

    def names(self) -> frozenset[str]:
        """The names of all models, also of those that cannot be loaded; errors as ``outline``."""
        return self.outline().names

    def obtain(self, name: str, may_be_old: bool = True) -> Obtained:
        """The model ``name`` as it is now, fetched when it lies elsewhere.

        With ``may_be_old`` a store that does not answer is answered for by the mirror.

        Raises:
            NaiadError: as ``find``, and as ``fetched``.
        """
        check_model_name(name)
        local = discover(self.repositories, self.paths, only=name) if self.remote else None
        is_local = local is not None and (name in local.models or name in local.unavailable)
        models = self._remote_models(name, may_be_old, is_local)
        if not models:
            return Obtained(self.find(name))
        if len(models) > 1 or is_local:
            raise ModelLoadError(_in_two(name, str(models[0].uri)))
        return fetched(models[0])

    def _remote_models(self, name: str, may_be_old: bool, is_local: bool) -> Sequence[RemoteModel]:
        """Those of that name. A repository that cannot be read matters only when no other has the model."""
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
        """Where the model ``name`` lies now on this machine.

        Raises:
            ModelLoadError: it lies nowhere, in more than one repository, or its folder cannot be read.
            InvalidArgumentError: there can be no model of that name.
            OptionError: a repository is gone.
        """
        check_model_name(name)
        listing = discover(self.repositories, self.paths, only=name)
        source = listing.models.get(name)
        if source is not None:
            return source
        reason = listing.unavailable.get(name)
        raise ModelLoadError(reason or f"there is no model of the name '{name}' in what this server serves")


def open_catalog(
    repositories: Sequence[Path | RemoteUri], paths: Sequence[Path | RemoteUri], mirror: str, mirror_size: int
) -> Catalog:
    """The catalog of local folders and of addresses; no store is asked yet.

    ``mirror`` and ``mirror_size`` are ``--model-repository-mirror`` and its size.

    Raises:
        OptionError: an address or its mirror cannot be used.
    """
    if all(isinstance(place, Path) for place in (*repositories, *paths)):
        return Catalog(_local(repositories), _local(paths))
    # Imported here: a server of local folders does not pay for it.
    from naiad.repository.remote.opening import Mirrors, open_repository

    mirrors = Mirrors(mirror, mirror_size)
    remote = [open_repository(uri, mirrors) for uri in dict.fromkeys(repositories) if isinstance(uri, RemoteUri)]
    remote += [
        open_repository(uri, mirrors, may_be_model=True) for uri in dict.fromkeys(paths) if isinstance(uri, RemoteUri)
    ]
    return Catalog(_local(repositories), _local(paths), tuple(remote), mirrors.close)


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
        return Obtained(listing.models[model.name], view)
    except BaseException:
        view.release()
        raise


def _in_two(name: str, place: str) -> str:
    return f"model '{name}' is in '{place}' and in another repository: keep it in one of them"
