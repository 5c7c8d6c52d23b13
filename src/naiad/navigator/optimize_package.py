"""``nav.package.optimize``: converts, verifies and measures again what a package has, such as on another machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from naiad.convert.package import copied
from naiad.convert.run import Converter
from naiad.convert.settings import ConvertSettings, Verification
from naiad.navigator.configuration import DeviceKind, OptimizationProfile
from naiad.navigator.converted import Package
from naiad.navigator.exceptions import ModelNavigatorEmptyPackageError, ModelNavigatorUserInputError
from naiad.navigator.formats import our_formats
from naiad.navigator.optimize import verify_file


def optimize(
    package: Package,
    target_formats: Sequence[Any] | None = None,
    target_device: DeviceKind | None = DeviceKind.CPU,
    runners: Sequence[Any] | None = None,
    optimization_profile: OptimizationProfile | None = None,
    workspace: str | Path | None = None,
    verbose: bool | None = False,
    debug: bool | None = False,
    verify_func: Callable[..., Any] | None = None,
    custom_configs: Sequence[Any] | None = None,
    defaults: bool = True,
    fail_on_empty: bool = True,
) -> Package:
    """Make the formats of a package again that other formats are converted to, then verify and measure all.

    The formats that were exported from the source model are taken as they are: a package does not have the source.

    Args:
        target_formats: None for those that the package was made for.
        target_device, runners, debug, custom_configs, defaults: have no effect.
        workspace: a folder for the new package, which is emptied.
        fail_on_empty: whether a package without any format is an error, rather than measured again as it is.

    Raises:
        ModelNavigatorEmptyPackageError: no format of the package was made, unless ``fail_on_empty`` is False.
        ModelNavigatorUserInputError: the package was saved without samples, or is in the workspace itself.
    """
    if fail_on_empty and package.is_empty():
        raise ModelNavigatorEmptyPackageError("no format of the package was made")
    before, work = package.conversion, Path(workspace or "navigator_workspace").resolve()
    if not any((Path(before.work) / "samples").glob("*.npz")):
        raise ModelNavigatorUserInputError("the package has no samples; save it with save_data=True")
    if Path(before.work).resolve().is_relative_to(work):
        raise ModelNavigatorUserInputError(f"the package itself is in {work}; give another workspace")
    shutil.rmtree(work, ignore_errors=True)
    earlier = copied(before, work)
    asked = our_formats(target_formats) or tuple(result.target for result in before.formats if result.is_wanted)
    settings = ConvertSettings(
        model=before.model,
        data="",
        work=work,
        formats=asked,
        verification=Verification(function=verify_file(verify_func, work) if verify_func is not None else ""),
        measuring=(optimization_profile or OptimizationProfile()).measuring(),
        name=before.name,
    )
    return Package(Converter(settings, print if verbose else None, earlier=earlier).run(), package.model)
