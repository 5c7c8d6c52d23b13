"""``nav.package``: the file of a package, its best format, and what can be done with it again."""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from naiad.convert import package as convert_package
from naiad.convert.results import FormatResult
from naiad.folder_lease import FolderLease, abandoned_folders
from naiad.navigator.converted import Package, PackageRunner
from naiad.navigator.optimize_package import optimize
from naiad.navigator.profile import ProfilingResults, profile
from naiad.navigator.strategies import RuntimeSearchStrategy

_PREFIX: Final = "naiad-package-"

__all__ = [
    "Package",
    "PackageRunner",
    "ProfilingResults",
    "get_best_model_status",
    "load",
    "optimize",
    "profile",
    "save",
]


def save(package: Package, path: str | Path, override: bool = False, save_data: bool = True) -> None:
    """Write a package into a file.

    Raises:
        FileExistsError: the file is there already. Like the next, it is a ``ConvertError`` as well.
        FileNotFoundError: the workspace is gone.
        ConvertError: the file cannot be written.
    """
    convert_package.save(package.conversion, Path(path), overwrite=override, with_samples=save_data)


def load(path: str | Path, workspace: str | Path | None = None) -> Package:
    """Read a package from a file.

    Args:
        workspace: a folder for its files, which is new or holds those of an earlier package, which go; None for one
            that is removed when this process ends.

    Raises:
        FileNotFoundError: there is no such file. It is a ``ConvertError`` as well.
        ConvertError: the file is no package.
    """
    if workspace:
        return Package(convert_package.load(Path(path), Path(workspace)))
    for abandoned in abandoned_folders(_PREFIX):
        shutil.rmtree(abandoned, ignore_errors=True)
    lease = FolderLease(_PREFIX)
    try:
        found = convert_package.load(Path(path), lease.path / "package")
    except BaseException:
        _remove(lease, os.getpid())
        raise
    # Not with the package: runners and callers keep paths of its files.
    atexit.register(_remove, lease, os.getpid())
    return Package(found)


def _remove(lease: FolderLease, owner: int) -> None:
    # A child that this process has forked runs this, too.
    if os.getpid() == owner:
        shutil.rmtree(lease.path, ignore_errors=True)
        lease.release()


def get_best_model_status(
    package: Package, strategies: Sequence[RuntimeSearchStrategy] | None = None, include_source: bool = True
) -> FormatResult | None:
    """As the package's own method."""
    return package.get_best_model_status(strategies, include_source)
