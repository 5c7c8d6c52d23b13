"""``nav.package``: the file of a package, its best format, and what can be done with it again."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from naiad.convert import package as convert_package
from naiad.convert.results import FormatResult
from naiad.navigator.converted import Package, PackageRunner
from naiad.navigator.optimize_package import optimize
from naiad.navigator.profile import ProfilingResults, profile
from naiad.navigator.strategies import RuntimeSearchStrategy

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
        ConvertError: the file is there already, or cannot be written.
    """
    convert_package.save(package.conversion, Path(path), overwrite=override, with_samples=save_data)


def load(path: str | Path, workspace: str | Path | None = None) -> Package:
    """Read a package from a file into ``workspace``, a new folder.

    Raises:
        ConvertError: the file is no package.
    """
    folder = Path(workspace) if workspace else Path(tempfile.mkdtemp(prefix="naiad-package-"))
    return Package(convert_package.load(Path(path), folder))


def get_best_model_status(
    package: Package, strategies: Sequence[RuntimeSearchStrategy] | None = None, include_source: bool = True
) -> FormatResult | None:
    """As the package's own method."""
    return package.get_best_model_status(strategies, include_source)
