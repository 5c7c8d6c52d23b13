"""``naiad convert`` over architectures: which paths succeed, how long it takes, and what it gains."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from naiad.cli.convert import settings_of
from naiad.cli.convert_options import parser
from naiad.convert.results import Conversion, FormatResult
from naiad.convert.run import Converter

from ..convert import networks
from ..figures import Bound, CaseSkippedError, Figure
from ..settings import Settings

MINUTES: Final = 6.0
NETWORKS: Final = Path(networks.__file__)
QUICK: Final = ("scikit_learn", "lstm")


@dataclass(frozen=True, slots=True)
class Architecture:
    """One model of ``networks``: the packages that it needs, and the paths that its framework itself cannot do."""

    name: str
    packages: tuple[str, ...]
    cannot: tuple[str, ...] = ()


# torch.jit.script takes no transformers; treelite takes forests alone.
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


def measure(settings: Settings) -> Iterator[Figure]:
    """One figure for each architecture, then the sums; the matrix goes to standard error."""
    gains: list[float] = []
    tried = made = able = able_made = 0
    chosen = [one for one in ARCHITECTURES if not settings.quick or one.name in QUICK]
    there = [one for one in chosen if all(importlib.util.find_spec(package) for package in one.packages)]
    if not there:
        raise CaseSkippedError("no framework is installed")
    for one in there:
        conversion = converted(one, settings.work)
        # A package that is not installed says nothing about a path.
        results = [result for result in conversion.formats if not lacks_package(result, conversion)]
        _print(one, results, conversion)
        good = [result for result in results if result.is_good]
        tried, made = tried + len(results), made + len(good)
        can = [result for result in results if result.target not in one.cannot]
        able, able_made = able + len(can), able_made + sum(result.is_good for result in can)
        gain = _gain(conversion)
        gains += [gain] if gain else []
        yield Figure(f"convert_{one.name}", len(good) / max(1, len(results)), "of paths", note=f"gain {gain:.2f}")
        yield Figure(f"convert_{one.name}_time", conversion.seconds / 60, "min", _time_bound(one.name))
        if one.name == "resnet50":
            yield Figure("convert_resnet50_gain", gain, "times eager torch", Bound(">=", 1.3))
    yield Figure("convert_paths", made / max(1, tried), "of all", Bound(">=", 0.9), f"{made} of {tried}")
    yield Figure("convert_paths_able", able_made / max(1, able), "of those that frameworks can do", Bound("=", 1.0))
    if gains:
        yield Figure("convert_gain_median", statistics.median(gains), "times the source", Bound(">=", 1.5))


def converted(one: Architecture, work: Path) -> Conversion:
    """All formats of one architecture."""
    words = [f"{NETWORKS}:{one.name}", f"--data={NETWORKS}:{one.name}_data", f"--work={work / one.name}"]
    words += ["--metric=cosine", "--min=0.99", "--batch-sizes=1,4", "--window=300"]
    with contextlib.redirect_stdout(io.StringIO()):
        return Converter(settings_of(parser().parse_args(words))).run()


def lacks_package(result: FormatResult, conversion: Conversion) -> bool:
    """Whether a format was not made for want of a package, its own or that of the format it is made from."""
    failed = result.failure
    if failed is None:
        return False
    lacking = any(one.failure is not None and one.failure.is_missing_package for one in conversion.formats)
    return failed.is_missing_package or ("which failed" in failed.reason and lacking) or result.target == "tensorrt"


def _gain(conversion: Conversion) -> float:
    """The median latency of the source over that of the fastest format, both with a batch of 1; 0 without both."""
    medians = [result.measured.first.p50_ms for result in conversion.formats if result.is_good and result.measured]
    source = conversion.source
    return source.first.p50_ms / min(medians) if medians and source and source.levels else 0.0


def _time_bound(name: str) -> Bound | None:
    return Bound("<", MINUTES) if name == "resnet50" else None


def _print(one: Architecture, results: list[FormatResult], conversion: Conversion) -> None:
    print(f"\n{one.name} ({conversion.described['kind']})", file=sys.stderr)
    for result in results:
        rate = f"{result.measured.first.rate:9.1f}/s" if result.measured and result.measured.levels else " " * 11
        peak = f"{result.peak_bytes >> 20:6} MiB" if result.is_made else ""
        failure = f" {result.failure}" if result.failure else ""
        print(f"  {result.target:<20}{result.state:<22}{rate} {result.seconds:6.1f} s {peak}{failure}", file=sys.stderr)
