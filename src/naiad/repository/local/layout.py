"""The layout of a model repository: models, versions, configuration files, and the problems with any of it.

Layout: ``<repository>/<model>/[config.pbtxt] <version>/<model file>``. Nothing is opened here, only listed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from naiad.config.complete import format_by_suffix, format_of_file
from naiad.config.read import ConfigFormat, config_files
from naiad.config.source import ModelSource
from naiad.errors import InvalidArgumentError, ModelLoadError, OptionError
from naiad.repository.local.file_hints import unknown_file_text
from naiad.repository.local.folder_hints import hint_for_repository, version_number

__all__ = [
    "LayoutProblem",
    "Listing",
    "ModelNameError",
    "ModelSource",
    "check_model_name",
    "choose_versions",
    "duplicate",
    "is_model_directory",
    "model_directory",
    "scan",
    "single_file",
    "single_name",
    "version_number",
]

MAX_VERSION = 2**63 - 1
IN_TWO: Final = "model appears in two or more repositories"
"""The reference's reason in the index."""
_LOST_AND_FOUND: Final = "lost+found"
"""The folder that file systems keep in the root of a disk, for themselves."""
_CYCLE = "'{}' is a link to a folder that holds it (a cycle)"


@dataclass(frozen=True, slots=True)
class LayoutProblem:
    """A problem with the files of ``model`` ("" for the repository itself).

    With ``fatal`` the model cannot be loaded; otherwise only ``path`` is skipped.
    """

    model: str
    path: Path
    message: str
    fatal: bool = True

    def located(self) -> str:
        """The message with its path in front."""
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Listing:
    """Models by name, sorted, and the problems with them.

    A model with a fatal problem is in ``unavailable`` and not in ``models``.
    """

    models: Mapping[str, ModelSource]
    problems: tuple[LayoutProblem, ...] = ()

    @property
    def unavailable(self) -> Mapping[str, str]:
        """The reason by name, for each model that cannot be loaded."""
        # Reversed, so that the first problem of a model is the one that is shown.
        return {p.model: p.message for p in reversed(self.problems) if p.fatal and p.model}


def scan(repositories: Sequence[Path], only: str | None = None) -> Listing:
    """List every model of ``repositories``, which count as a set, or ``only`` the one of that name.

    Raises:
        OptionError: a repository does not exist, is not a folder or cannot be read.
    """
    found: dict[str, list[ModelSource]] = {}
    problems: list[LayoutProblem] = []
    for repository in _distinct(repositories):
        for path in _model_paths(repository, problems, only):
            source = _model(path, repository, problems)
            if source is not None:
                found.setdefault(source.name, []).append(source)
    problems += [duplicate(name, sources) for name, sources in found.items() if len(sources) > 1]
    unavailable = {problem.model for problem in problems if problem.fatal}
    return Listing({name: found[name][0] for name in sorted(found) if name not in unavailable}, tuple(problems))


def model_directory(path: Path) -> Listing:
    """The one model in the folder ``path``, as ``scan`` would find it."""
    # The folder's name is the model's, and "." has none.
    path = Path(os.path.abspath(path))
    problems: list[LayoutProblem] = []
    source = _model(path, path.parent, problems)
    refused = source is None or any(problem.fatal for problem in problems)
    return Listing({} if source is None or refused else {source.name: source}, tuple(problems))


def is_model_directory(path: Path) -> bool:
    """True when the folder ``path`` looks like one model rather than like a repository of models."""
    try:
        children = sorted(path.iterdir())
    except OSError:
        # Not a folder, or unreadable, which the listing reports.
        return False
    return bool(config_files(path)) or any(version_number(child.name) and os.path.isdir(child) for child in children)


def single_file(path: Path) -> ModelSource:
    """A model that is one file, or a SavedModel's folder, outside of any repository.

    Its name is that of the file without its suffix, and its version is 1.

    Raises:
        ModelLoadError: there is no such file, or its suffix names no known kind of model.
        InvalidArgumentError: its name cannot be that of a model.
    """
    if not path.exists():
        raise ModelLoadError(f"'{path}' does not exist, expected a model file")
    if path.suffix == ".pbtxt":
        raise ModelLoadError(f"'{path}' is a configuration, expected a model file or the folder of the model")
    if format_of_file(path) is None:
        raise ModelLoadError(unknown_file_text(path))
    name = single_name(path)
    check_model_name(name)
    return ModelSource(name, versions={1: path.parent}, single_file=path)


def single_name(path: Path) -> str:
    """The name of the model in a single file or a SavedModel's folder."""
    # A folder's name has no suffix: clf.v2 is all of it.
    return path.absolute().name.removesuffix(".savedmodel") if path.is_dir() else path.stem


class ModelNameError(InvalidArgumentError):
    """No model can have this name."""


def check_model_name(name: str) -> None:
    """Refuse a model name that is empty or leaves its repository. Spaces around it do not hide that.

    Raises:
        ModelNameError: with the protocol's own text.
    """
    # The reference strips the name first.
    bare = name.strip(" \t\n\r\f\v")
    if not bare:
        raise ModelNameError("Model name cannot be empty. Please enter a valid name to deploy.")
    if bare in (".", "..") or any(mark in name for mark in "/\\\0"):
        raise ModelNameError(f"invalid model name '{name}', model name must not contain path traversal characters")


def choose_versions(config: Any, available: Iterable[int], name: str = "") -> tuple[int, ...]:
    """The versions of ``available`` that the version policy of ``config`` (a ``ModelConfig``) asks for, ascending.

    ``name`` is what a message calls the model; its name in ``config`` by default, which may still be empty.

    Raises:
        ModelLoadError: no version remains.
    """
    versions = sorted(available)
    policy = config.version_policy
    choice = policy.WhichOneof("policy_choice")
    if choice == "specific":
        chosen = [version for version in versions if version in policy.specific.versions]
    elif choice == "all":
        chosen = versions
    else:
        # ``latest`` is also the default, and a number that is not given reads as 0.
        chosen = versions[-max(1, policy.latest.num_versions) :]
    if not chosen:
        raise ModelLoadError(_no_version(config, choice, versions, name or config.name))
    return tuple(chosen)


def _no_version(config: Any, choice: str | None, versions: Sequence[int], name: str) -> str:
    text = f"at least one version must be available under the version policy of model '{name}'"
    if choice == "specific" and versions:
        return f"{text}, found {versions}, expected one of {list(config.version_policy.specific.versions)}"
    return f"{text}, found no version folder, expected a folder '1' with the model file in it"


def _distinct(repositories: Sequence[Path]) -> list[Path]:
    by_place: dict[str, Path] = {}
    for repository in repositories:
        # A repository given twice, by a link for instance, must not make each of its models a duplicate.
        by_place.setdefault(os.path.realpath(_checked(repository)), repository)
    return list(by_place.values())


def _checked(repository: Path) -> Path:
    shown = f"the model repository '{repository}'"
    if not repository.exists():
        raise OptionError(f"{shown} does not exist, expected a folder that holds one folder for each model")
    if not repository.is_dir():
        hint = ""
        if format_by_suffix(repository.name) is not None:
            hint = f"; to serve this one model: naiad serve {repository}"
        raise OptionError(f"{shown} is a file, expected a folder that holds one folder for each model{hint}")
    return repository


def _model_paths(repository: Path, problems: list[LayoutProblem], only: str | None) -> list[Path]:
    """The folders that are models; plain files, hidden folders and the disk's own are skipped."""
    if only is not None:
        # The folder is not listed for one model. A dangling link is a problem of the model, not a missing model.
        path = repository / only
        is_there = not _is_passed_over(only) and os.path.lexists(path)
        return [path] if is_there and _is_folder(path, only, problems) else []
    try:
        paths = sorted(path for path in repository.iterdir() if not _is_passed_over(path.name))
    except OSError as error:
        raise OptionError(f"cannot read the model repository '{repository}': {error.strerror}") from None
    if config_files(repository):
        message = (
            f"found {config_files(repository)[0].name} in the repository itself, where it has no effect: "
            f"if this is one model's folder, give the folder above it ('{repository.absolute().parent}')"
        )
        problems.append(LayoutProblem("", repository, message, fatal=False))
    elif hint := hint_for_repository(repository, paths):
        problems.append(LayoutProblem("", repository, hint, fatal=False))
    return [path for path in paths if _has_utf8_name(path, problems) and _is_folder(path, path.name, problems)]


def _is_passed_over(name: str) -> bool:
    return name.startswith(".") or name == _LOST_AND_FOUND


def _has_utf8_name(path: Path, problems: list[LayoutProblem]) -> bool:
    """Whether a model of that name can be shown to callers: the protocols have texts in UTF-8 only."""
    try:
        path.name.encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path.name).decode(errors="backslashreplace")
        message = f"the folder '{shown}' is left out, its name is not UTF-8: rename it"
        problems.append(LayoutProblem("", path.parent, message, fatal=False))
        return False
    return True


def _is_folder(path: Path, model: str, problems: list[LayoutProblem]) -> bool:
    """Whether a path is a folder; a dangling link and an unreadable path are problems of ``model``."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError as error:
        problems.append(LayoutProblem(model, path, f"'{path}' cannot be followed: {error.strerror}"))
        return False


def _model(path: Path, repository: Path, problems: list[LayoutProblem]) -> ModelSource | None:
    name = path.name
    try:
        check_model_name(name)
    except InvalidArgumentError as error:
        problems.append(LayoutProblem(name, path, str(error)))
        return None
    if _leads_up(path, repository):
        problems.append(LayoutProblem(name, path, _CYCLE.format(path)))
        return None
    try:
        children = sorted(path.iterdir())
    except OSError as error:
        problems.append(LayoutProblem(name, path, f"cannot read the model's folder '{path}': {error.strerror}"))
        return None
    versions = dict(_versions(name, path, children, problems))
    configs = config_files(path)
    for ignored in configs[1:] if configs and configs[0].name == ConfigFormat.PBTXT.value else ():
        message = f"{ignored.name} is not read, since {configs[0].name} is there"
        problems.append(LayoutProblem(name, ignored, message, fatal=False))
    return ModelSource(name, path, versions, configs[0] if configs else None)


def _leads_up(path: Path, holder: Path) -> bool:
    """True when ``path`` is, behind its links, ``holder`` or a folder above it."""
    target = Path(os.path.realpath(path))
    return path.is_symlink() and Path(os.path.realpath(holder)).is_relative_to(target)


def _versions(
    model: str, directory: Path, children: Iterable[Path], problems: list[LayoutProblem]
) -> Iterator[tuple[int, Path]]:
    for child in children:
        version = version_number(child.name)
        if version is None and version_number(child.name.lstrip("0")) and _is_folder(child, model, problems):
            message = f"ignore version directory '{child.name}' which contains leading zeros in its directory name"
            problems.append(LayoutProblem(model, child, message, fatal=False))
        if version is None or not _is_folder(child, model, problems):
            continue
        if version > MAX_VERSION:
            message = f"the version is too large and left out, expected at most {MAX_VERSION}"
            problems.append(LayoutProblem(model, child, message, fatal=False))
        elif _leads_up(child, directory):
            problems.append(LayoutProblem(model, child, _CYCLE.format(child)))
        else:
            yield version, child


def duplicate(name: str, sources: Sequence[ModelSource]) -> LayoutProblem:
    """The problem of a model that is in more than one place."""
    places = [source.directory or source.single_file or Path() for source in sources]
    shown = ", ".join(f"'{place}'" for place in places)
    message = f"{IN_TWO}: {shown}; keep it in one of them"
    return LayoutProblem(name, places[0], message)
