"""What a load begins with: where the model lies now, how it is configured and which versions are wanted.

All of this reads files: it is called in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from naiad.config.read import ConfigFormat, ReadConfig, parse_config, read_config
from naiad.config.source import ModelSource
from naiad.errors import ConfigError, InvalidArgumentError, ModelLoadError
from naiad.repository.catalog import Held, Obtained, fetched
from naiad.repository.fingerprint import Fingerprint, fingerprint
from naiad.repository.layout import choose_versions, model_directory
from naiad.repository.overrides import NO_OVERRIDES, Overrides, write_files

if TYPE_CHECKING:
    from naiad.repository.catalog import Catalog
    from naiad.repository.remote.repository import RemoteModel


class NoVersionError(ModelLoadError):
    """The version policy of a model asks for versions that are not there."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that can be tried.

    Attributes:
        source: where it lies.
        read: its configuration as written.
        versions: those to be loaded.
        files: the repository's files that it comes from; None when it comes from the files of a request.
        folder: what keeps its files where they are, when they would go otherwise; held by whoever has the candidate.
    """

    source: ModelSource
    read: ReadConfig
    versions: tuple[int, ...]
    files: Fingerprint | None
    folder: Held | None = None


def candidate(source: ModelSource, model_config_name: str, overrides: Overrides = NO_OVERRIDES) -> Candidate:
    """The candidate that lies in ``source``, with the configuration of ``overrides`` where there is one.

    Raises:
        ConfigError: the configuration cannot be read.
        NoVersionError: no wanted version is there.
    """
    files = fingerprint(source)
    read = read_config(source, model_config_name) if overrides.config is None else _parsed(source, overrides.config)
    try:
        return Candidate(source, read, choose_versions(read.config, source.versions), files)
    except ModelLoadError as error:
        raise NoVersionError(str(error)) from error


def first_candidate(model: ModelSource | RemoteModel, model_config_name: str) -> Candidate:
    """The candidate of the start: ``model``, fetched when it lies elsewhere.

    Raises:
        StoreError: it cannot be fetched.
        NaiadError: as ``candidate``.
    """
    if isinstance(model, ModelSource):
        return candidate(model, model_config_name)
    return _of_obtained(fetched(model), model_config_name, NO_OVERRIDES)


def _of_obtained(obtained: Obtained, model_config_name: str, overrides: Overrides) -> Candidate:
    try:
        found = candidate(obtained.source, model_config_name, overrides)
        if obtained.folder is None:
            return found
        # Other files make another folder, so its path tells them apart; what a model writes there does not count.
        return replace(found, files=frozenset([(str(obtained.source.directory), 0, 0)]), folder=obtained.folder)
    except BaseException:
        if obtained.folder is not None:
            obtained.folder.release()
        raise


def find_candidate(
    catalog: Catalog, name: str, model_config_name: str, overrides: Overrides, may_be_old: bool = True
) -> Candidate:
    """The candidate for the model ``name``: that of the catalog, or the files of ``overrides``.

    ``may_be_old`` allows for the mirror's copy when the store of the model does not answer.

    Raises:
        InvalidArgumentError: the files come without a configuration, or are not usable.
        ModelLoadError: there is no such model.
        OptionError: a repository is gone.
        StoreError: a remote repository cannot be read.
        NaiadError: as ``candidate``.
    """
    if not overrides.files:
        return _of_obtained(catalog.obtain(name, may_be_old), model_config_name, overrides)
    if overrides.config is None:
        raise InvalidArgumentError("Load parameter 'config' must be specified for model file override")
    folder = write_files(name, overrides.files)
    try:
        listing = model_directory(folder.path)
        found = candidate(listing.models[name], model_config_name, overrides)
    except BaseException:
        folder.release()
        raise
    return Candidate(found.source, found.read, found.versions, None, folder)


def _parsed(source: ModelSource, text: str) -> ReadConfig:
    try:
        read = parse_config(text, ConfigFormat.JSON)
    except ConfigError as error:
        place = f" at line {error.line} of it" if error.line is not None else ""
        raise ConfigError(f"the parameter 'config' is no model configuration as JSON: {error}{place}") from error
    read.config.name = read.config.name or source.name
    return read
