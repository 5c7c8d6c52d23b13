"""What a server was told to serve, looked at again whenever a model is to be loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from naiad.errors import ModelLoadError, NaiadError
from naiad.repository.discover import discover
from naiad.repository.layout import Listing, check_model_name, scan

if TYPE_CHECKING:
    from pathlib import Path

    from naiad.config.source import ModelSource


@dataclass(frozen=True, slots=True)
class Catalog:
    """The ``repositories`` and ``paths`` as ``discover`` takes them. Its methods read folders: for threads only."""

    repositories: tuple[Path, ...] = ()
    paths: tuple[Path, ...] = ()

    def listing(self) -> Listing:
        """All models; errors as ``discover``."""
        return discover(self.repositories, self.paths)

    def places(self) -> Iterator[tuple[Path, Listing | None, str]]:
        """Each repository and path for itself, so that one that cannot be read leaves the others alone.

        Yields:
            The place, its models, and in place of them why it cannot be read.
        """
        seen: set[str] = set()
        for place in (*self.repositories, *self.paths):
            real = os.path.realpath(place)
            if real in seen:
                continue
            seen.add(real)
            try:
                yield place, self._listing_of(place), ""
            except (NaiadError, OSError) as error:
                yield place, None, str(error)

    def _listing_of(self, place: Path) -> Listing:
        return scan((place,)) if place in self.repositories else discover((), (place,))

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
        check_model_name(name)
        listing = discover(self.repositories, self.paths, only=name)
        source = listing.models.get(name)
        if source is not None:
            return source
        reason = listing.unavailable.get(name)
        raise ModelLoadError(reason or f"there is no model of the name '{name}' in what this server serves")
