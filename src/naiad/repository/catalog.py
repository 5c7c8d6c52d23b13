"""What a server was told to serve, looked at again whenever a model is to be loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from naiad.errors import ModelLoadError, NaiadError
from naiad.repository.discover import discover
from naiad.repository.layout import Listing, check_model_name, scan
from naiad.repository.namespaces import in_namespace, short_name

if TYPE_CHECKING:
    from pathlib import Path

    from naiad.config.source import ModelSource


@dataclass(frozen=True, slots=True)
class Catalog:
    """The ``repositories`` and ``paths`` as ``discover`` takes them. Its methods read folders: for threads only.

    With ``has_namespaces`` each of them is a namespace: models are known by their keys, so that names may repeat.
    """

    repositories: tuple[Path, ...] = ()
    paths: tuple[Path, ...] = ()
    has_namespaces: bool = False

    def listing(self) -> Listing:
        """All models; errors as ``discover``."""
        if not self.has_namespaces:
            return discover(self.repositories, self.paths)
        listings = [self._listing_of(place) for place in self._places()]
        models = {key: source for listing in listings for key, source in listing.models.items()}
        return Listing(models, tuple(problem for listing in listings for problem in listing.problems))

    def places(self) -> Iterator[tuple[Path, Listing | None, str]]:
        """Each repository and path for itself, so that one that cannot be read leaves the others alone.

        Yields:
            The place, its models, and in place of them why it cannot be read.
        """
        for place in self._places():
            try:
                yield place, self._listing_of(place), ""
            except (NaiadError, OSError) as error:
                yield place, None, str(error)

    def _places(self) -> list[Path]:
        by_place: dict[str, Path] = {}
        for place in (*self.repositories, *self.paths):
            by_place.setdefault(os.path.realpath(place), place)
        return list(by_place.values())

    def _listing_of(self, place: Path) -> Listing:
        listing = scan((place,)) if place in self.repositories else discover((), (place,))
        return in_namespace(listing, str(place)) if self.has_namespaces else listing

    def keys(self, name: str) -> list[str]:
        """What the models of a name are known by, where there are namespaces; errors as ``find``."""
        check_model_name(name)
        return sorted(key for key in self.names() if short_name(key) == name)

    def names(self) -> frozenset[str]:
        """The names of all models, also of those that cannot be loaded; errors as ``discover``."""
        listing = self.listing()
        return frozenset(listing.models) | frozenset(listing.unavailable)

    def find(self, name: str) -> ModelSource:
        """Where the model ``name`` lies now.

        Raises:
            ModelLoadError: it lies nowhere, in more than one repository, or its folder cannot be read.
            InvalidArgumentError: there can be no model of that name.
            OptionError: a repository is gone.
        """
        check_model_name(short_name(name) if self.has_namespaces else name)
        listing = self.listing() if self.has_namespaces else discover(self.repositories, self.paths, only=name)
        source = listing.models.get(name)
        if source is not None:
            return source
        reason = listing.unavailable.get(name)
        raise ModelLoadError(reason or f"there is no model of the name '{name}' in what this server serves")
