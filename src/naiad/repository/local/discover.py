"""One listing of models from the repositories and the positional paths of a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from naiad.config.complete import is_saved_model
from naiad.errors import OptionError
from naiad.repository.local.layout import (
    LayoutProblem,
    Listing,
    is_model_directory,
    model_directory,
    scan,
    single_file,
    single_name,
)


def discover(repositories: Sequence[Path], paths: Sequence[Path], only: str | None = None) -> Listing:
    """List the models of ``repositories`` and of ``paths``.

    A path is a model file, a SavedModel, the folder of one model, or a further repository.

    With ``only``, just the model of that name is listed.

    Raises:
        OptionError: a repository cannot be read, or two paths hold a model of the same name.
        ModelLoadError: a path is no model.
        InvalidArgumentError: a file's name cannot be that of a model.
    """
    folders = [path for path in paths if path.is_dir() and not is_saved_model(path)]
    alone = [path for path in folders if is_model_directory(path)]
    more = [path for path in folders if path not in alone]
    files = [path for path in paths if path not in folders]
    if only is not None:
        alone = [path for path in alone if path.absolute().name == only]
        files = [path for path in files if single_name(path) == only]
    listings = [scan((*repositories, *more), only)] if repositories or more else []
    listings += [model_directory(path) for path in alone]
    listings += [Listing({s.name: s}) for s in map(single_file, files)]
    models = {name: source for listing in listings for name, source in listing.models.items()}
    if len(models) < sum(len(listing.models) for listing in listings):
        raise OptionError(f"two of the given paths hold a model of the same name: {', '.join(_repeated(listings))}")
    return Listing(models, tuple(_problems(listings)))


def _problems(listings: Sequence[Listing]) -> Iterator[LayoutProblem]:
    for listing in listings:
        yield from listing.problems


def _repeated(listings: Sequence[Listing]) -> list[str]:
    names = [name for listing in listings for name in listing.models]
    return sorted({name for name in names if names.count(name) > 1})
