"""Finding a model that is to be loaded: its folder, its configuration and the versions that the policy chooses.

All of this reads files: it is called in a thread.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from naiad.config.problems import ConfigProblemsError
from naiad.config.read import ConfigFormat, ReadConfig, parse_config, read_config
from naiad.config.resolve import problems_without_version
from naiad.errors import ConfigError, InvalidArgumentError, ModelLoadError
from naiad.lifecycle.state.candidate import Candidate
from naiad.lifecycle.state.load_errors import NoVersionError
from naiad.repository.agents.agents import AgentDirectory
from naiad.repository.agents.managed_folder import tend
from naiad.repository.catalog import Obtained, fetched
from naiad.repository.changes.fingerprint import Fingerprint, fingerprint
from naiad.repository.local.folder_hints import hint_for_model, with_version_of_ensemble
from naiad.repository.local.layout import choose_versions, model_directory
from naiad.repository.local.namespaces import namespace_of, short_name
from naiad.repository.local.overrides import NO_OVERRIDES, Overrides, write_files

if TYPE_CHECKING:
    from pathlib import Path

    from naiad.config.source import ModelSource
    from naiad.repository.catalog import Catalog
    from naiad.repository.local.temporary_folder import ModelFolder
    from naiad.repository.remote.repository import RemoteModel

logger = logging.getLogger("naiad")
_OVERRIDE: Final = "Invalid config override: the parameter 'config'"
"""Begins as the reference's text, which its users look for in the log."""


@dataclass(frozen=True, slots=True)
class Finder:
    """Makes candidates.

    Attributes:
        model_config_name: ``--model-config-name``.
        agents: finds repository agents.
        needs_config: refuses a folder without a configuration, which nothing would complete.
    """

    model_config_name: str = ""
    agents: AgentDirectory = field(default_factory=AgentDirectory)
    needs_config: bool = False

    def candidate(
        self,
        source: ModelSource,
        overrides: Overrides = NO_OVERRIDES,
        known: Fingerprint | None = None,
        folder: ModelFolder | None = None,
        files: Fingerprint | None = None,
    ) -> Candidate:
        """The candidate in ``source``, with the configuration of ``overrides`` where there is one.

        Agents are called unless the files are ``known``. ``folder`` is the temporary folder of the model, and stays
        with the caller when an error is raised; ``files`` replaces the fingerprint of its files where that would not
        tell them from others.

        Raises:
            ConfigError: the configuration cannot be read, or is wrong and there is no version either.
            NoVersionError: no wanted version is there.
            ModelLoadError: an agent refuses the model.
        """
        # Before the files are read: a change meanwhile then shows at the next load.
        files = files or fingerprint(source)
        read = self._read(source, overrides)
        tended = tend(source, read.config, self.agents, folder) if files != known else None
        try:
            # An agent put the model elsewhere, perhaps with another configuration.
            if tended is not None and tended.path != source.directory:
                source = _moved(source, tended.path)
                read = self._read(source, overrides)
            if self.needs_config and source.directory is not None and overrides.config is None:
                _check_present(source.directory, read)
            source = with_version_of_ensemble(source, read.config)
            versions = _chosen(read, source)
        except BaseException:
            if tended is not None:
                # Agents hear that the load failed. ``folder`` stays with the caller, so it is not released here.
                tended.comes_in(None)
                tended.tried(False)
            raise
        return Candidate(source, read, versions, files, tended or folder)

    def fetched(self, model: RemoteModel, known: Fingerprint | None = None) -> Candidate:
        """The candidate of a model in a remote repository, fetched first; ``known`` as in ``candidate``.

        Raises:
            StoreError: it cannot be fetched.
            NaiadError: as ``candidate``.
        """
        return self.obtained(fetched(model), known=known)

    def obtained(
        self, found: Obtained, overrides: Overrides = NO_OVERRIDES, known: Fingerprint | None = None
    ) -> Candidate:
        """The candidate of a model that a catalog obtained, which is released when an error is raised.

        Raises:
            NaiadError: as ``candidate``.
        """
        # Other files make another folder, so its path tells them apart; files that a model writes there do not count.
        files = None if found.folder is None else frozenset([(str(found.source.directory), 0, 0)])
        try:
            return self.candidate(found.source, overrides, known, found.folder, files)
        except BaseException:
            if found.folder is not None:
                found.folder.release()
            raise

    def find(
        self,
        catalog: Catalog,
        name: str,
        overrides: Overrides,
        known: Fingerprint | None = None,
        may_be_old: bool = True,
    ) -> Candidate:
        """The candidate of the model ``name``: from the catalog, or from the files of ``overrides``.

        ``may_be_old`` allows the mirror's copy when the store of the model does not respond.

        Raises:
            InvalidArgumentError: the files come without a configuration, or are not usable.
            ModelLoadError: there is no such model.
            OptionError: a repository is gone.
            StoreError: a remote repository cannot be read.
            NaiadError: as ``candidate``.
        """
        if not overrides.files:
            return self.obtained(catalog.obtain(name, may_be_old), overrides, known)
        if overrides.config is None:
            raise InvalidArgumentError("Load parameter 'config' must be specified for model file override")
        short = short_name(name) if catalog.has_namespaces else name
        folder = write_files(short, overrides.files)
        try:
            source = model_directory(folder.path).models[short]
            source = replace(source, namespace=namespace_of(name) if catalog.has_namespaces else "")
            found = self.candidate(source, overrides, folder=folder)
        except BaseException:
            folder.release()
            raise
        return replace(found, files=None)

    def _read(self, source: ModelSource, overrides: Overrides) -> ReadConfig:
        if overrides.config is not None:
            return _parsed(source, overrides.config)
        return read_config(source, self.model_config_name)


def _check_present(directory: Path, read: ReadConfig) -> None:
    if read.origin.file is None:
        file = directory / ConfigFormat.PBTXT.value
        raise ConfigError(
            f"failed to open text file for read {file}: No such file or directory; write it, or start the server "
            f"without --disable-auto-complete-config"
        )


def _chosen(read: ReadConfig, source: ModelSource) -> tuple[int, ...]:
    try:
        chosen = choose_versions(read.config, source.versions)
    except ModelLoadError as error:
        if source.versions or source.directory is None:
            raise NoVersionError(str(error)) from error
        missing = f"{error}{hint_for_model(source.directory)}"
        # Both in one error: otherwise the second problem would only show once the first is solved.
        if found := problems_without_version(source, read):
            raise ConfigProblemsError([*found, ConfigError(missing)]) from error
        raise NoVersionError(missing) from error
    for version in read.config.version_policy.specific.versions:
        if version not in source.versions:
            # The reference's text.
            logger.error(
                "version %d is specified for model '%s', but the version directory is not present", version, source.name
            )
    return chosen


def _moved(source: ModelSource, path: Path) -> ModelSource:
    """The model where an agent has put it, under its own name."""
    listing = model_directory(path)
    if not listing.models:
        raise ModelLoadError(next(iter(listing.unavailable.values()), f"'{path}' holds no model"))
    (found,) = listing.models.values()
    return replace(found, name=source.name, namespace=source.namespace)


def _parsed(source: ModelSource, text: str) -> ReadConfig:
    if not text.strip():
        raise ConfigError(f"{_OVERRIDE} is empty, expected a model configuration as JSON")
    try:
        read = parse_config(text, ConfigFormat.JSON)
    except ConfigError as error:
        place = f" at line {error.line} of it" if error.line is not None else ""
        raise ConfigError(f"{_OVERRIDE} is no model configuration as JSON: {error}{place}") from error
    read.config.name = read.config.name or source.name
    return read
