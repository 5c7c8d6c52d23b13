"""The twelve architectures that are converted, and what came of one."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from naiad.cli.convert import settings_of
from naiad.cli.convert_options import parser
from naiad.convert.results import Conversion, FormatResult
from naiad.convert.run import Converter

from ..figures import CaseError
from . import networks

NETWORKS: Final = Path(networks.__file__)


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model of ``networks``: the packages that it needs, and the paths that its framework itself cannot do."""

    name: str
    packages: tuple[str, ...]
    cannot: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether its packages are installed."""
        return all(importlib.util.find_spec(package) for package in self.packages)


# torch.jit.script takes no transformers.
ARCHITECTURES: Final = (
    Architecture("resnet50", ("torch", "torchvision")),
    Architecture("mobilenet_v3", ("torch", "torchvision")),
    Architecture("efficientnet", ("torch", "torchvision")),
    Architecture("vit", ("torch", "torchvision")),
    Architecture("bert_tiny", ("torch", "transformers"), ("torchscript-script",)),
    Architecture("lstm", ("torch",)),
    Architecture("unet", ("torch",)),
    Architecture("detector", ("torch",)),
    Architecture("keras_dense", ("keras", "tensorflow")),
    Architecture("keras_convolution", ("keras", "tensorflow")),
    Architecture("scikit_learn", ("sklearn",)),
    Architecture("xgboost", ("xgboost",)),
)


def converted(name: str, work: Path, *words: str) -> Converter:
    """All formats of one network, published into ``repository`` of its own folder.

    Args:
        words: more options of ``naiad convert``.
    """
    folder = work / name
    options = [f"{NETWORKS}:{name}", f"--data={NETWORKS}:{name}_data", f"--work={folder / 'work'}"]
    options += ["--metric=cosine", "--min=0.99", "--batch-sizes=1,4", "--window=300", *words]
    converter = Converter(settings_of(parser().parse_args(options), repository=folder / "repository"))
    # What was compiled before must not be found.
    with _environment("XDG_CACHE_HOME", str(folder / "cache")), contextlib.redirect_stdout(io.StringIO()):
        conversion = converter.run()
    if conversion.publish_failure:
        raise CaseError(conversion.publish_failure)
    return converter


def lacks_package(result: FormatResult, conversion: Conversion) -> bool:
    """Whether a format was not made for want of a package, its own or that of the format it is made from."""
    failed = result.failure
    if failed is None:
        return False
    lacking = any(one.failure is not None and one.failure.is_missing_package for one in conversion.formats)
    return failed.is_missing_package or ("which failed" in failed.reason and lacking) or result.target == "tensorrt"


def gain(conversion: Conversion, *targets: str) -> float:
    """The median latency of the source over that of the fastest format, both with a batch of 1; 0 without both.

    Args:
        targets: formats that count; all when none is named.
    """
    medians = [
        result.measured.first.p50_ms
        for result in conversion.formats
        if result.is_good and result.measured and (not targets or result.target in targets)
    ]
    source = conversion.source
    return source.first.p50_ms / min(medians) if medians and source and source.levels else 0.0


def show(name: str, results: list[FormatResult], conversion: Conversion) -> None:
    """A row for each format, on standard error."""
    source = conversion.source
    own = f", {source.first.p50_ms:.3f} ms with a batch of 1" if source and source.levels else ""
    print(f"\n{name} ({conversion.described['kind']}{own}, {conversion.seconds:.0f} s in all)", file=sys.stderr)
    for result in results:
        first = f"{result.measured.first.p50_ms:9.3f} ms" if result.measured and result.measured.levels else " " * 12
        peak = f"{result.peak_bytes >> 20:6} MiB" if result.is_made else ""
        failure = f" {result.failure}" if result.failure else ""
        print(
            f"  {result.target:<20}{result.state:<22}{first} {result.seconds:6.1f} s {peak}{failure}", file=sys.stderr
        )


@contextlib.contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
