"""``naiad convert`` over architectures: which paths succeed, how long it takes, what it gains and what it publishes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from naiad.convert.results import Conversion

from ..convert.architectures import ARCHITECTURES, Architecture, converted, gain, lacks_package, show
from ..convert.published import rate_in_process, rate_over_http, reported_rate
from ..figures import Bound, CaseSkippedError, Figure
from ..settings import Settings

MINUTES: Final = 6.0
QUICK: Final = ("scikit_learn", "lstm")
QUICK_OPTIONS: Final = ("--batch-sizes=1", "--window=50")
"""Every path is walked all the same."""
FULL_PRECISION: Final = ("onnx", "onnx-trace", "openvino")
"""Formats of which one has to beat eager torch on resnet50."""
TIMES_OF_MODEL: Final = 3.0
PUBLISHED_RUNS: Final = 3


def measure(settings: Settings) -> Iterator[Figure]:
    """The figures of each architecture, then the sums; the matrix goes to standard error."""
    chosen = [one for one in ARCHITECTURES if not settings.quick or one.name in QUICK]
    there = [one for one in chosen if one.is_there]
    if not there:
        raise CaseSkippedError("no framework is installed")
    sums = Sums()
    for one in there:
        yield from _measured(settings, one, sums)
    yield from sums.figures()


class Sums:
    """What is said of all architectures together."""

    def __init__(self) -> None:
        self.tried = self.made = self.able = self.able_made = 0
        self.gains: list[float] = []

    def add(self, one: Architecture, conversion: Conversion) -> str:
        """Count one architecture; how many of its paths succeeded, in words."""
        # A package that is not installed says nothing about a path.
        results = [result for result in conversion.formats if not lacks_package(result, conversion)]
        show(one.name, results, conversion)
        good = sum(result.is_good for result in results)
        can = [result for result in results if result.target not in one.cannot]
        self.tried, self.made = self.tried + len(results), self.made + good
        self.able, self.able_made = self.able + len(can), self.able_made + sum(result.is_good for result in can)
        found = gain(conversion)
        # Of the networks; estimators gain more.
        self.gains += [found] if found and "torch" in one.packages else []
        return f"{good} of {len(results)}"

    def figures(self) -> Iterator[Figure]:
        """The parts of all paths, and the median gain."""
        yield Figure(
            "convert_paths", self.made / max(1, self.tried), "of all", Bound(">=", 0.9), f"{self.made} of {self.tried}"
        )
        yield Figure(
            "convert_paths_able",
            self.able_made / max(1, self.able),
            "of those that frameworks can do",
            Bound("=", 1.0),
            f"{self.able_made} of {self.able}",
        )
        if self.gains:
            median, note = statistics.median(self.gains), f"{len(self.gains)} networks"
            yield Figure("convert_gain_median", median, "times the source", Bound(">=", 1.5), note)


def _one(name: str, settings: Settings) -> Iterator[Figure]:
    one = next(one for one in ARCHITECTURES if one.name == name)
    if not one.is_there:
        raise CaseSkippedError(f"it needs {' and '.join(one.packages)}")
    yield from _measured(settings, one, Sums())


def _measured(settings: Settings, one: Architecture, sums: Sums) -> Iterator[Figure]:
    converter = converted(one.name, settings.work, *(QUICK_OPTIONS if settings.quick else ()))
    conversion, name = converter.conversion, f"convert_{one.name}"
    tried = sums.add(one, conversion)
    made, _, of = tried.partition(" of ")
    yield Figure(name, int(made) / max(1, int(of)), "of paths", note=tried)
    is_large = one.name == "resnet50"
    yield Figure(f"{name}_time", conversion.seconds / 60, "min", Bound("<", MINUTES) if is_large else None)
    yield Figure(f"{name}_gain", gain(conversion), "times the source", note=conversion.chosen)
    if is_large:
        yield Figure(f"{name}_onnx_openvino", gain(conversion, *FULL_PRECISION), "times eager torch", Bound(">=", 1.3))
    if conversion.published:
        reported = reported_rate(converter)
        rates = [rate_in_process(converter, settings.work) for _ in range(1 if settings.quick else PUBLISHED_RUNS)]
        ratio = statistics.median(rates) / reported
        note = f"{ratio:.3f} of it, without a network"
        yield Figure(f"{name}_published", 100 * abs(ratio - 1), "% from the report", Bound("<=", 10), note)
        yield Figure(f"{name}_served", rate_over_http(converter, settings.work) / reported, "of it over HTTP")


def memory(settings: Settings) -> Iterator[Figure]:
    """The memory of each step on resnet50, above that of the same step on a network of a few hundred bytes.

    That network's own is the framework's: to import torch alone takes 300 MB.
    """
    if not ARCHITECTURES[0].is_there:
        raise CaseSkippedError("it needs torch and torchvision")
    words = ("--batch-sizes=1", "--window=20")
    least = converted("tiny", settings.work, *words).conversion
    conversion = converted("resnet50", settings.work, *words).conversion
    weights = next(result.size_bytes for result in conversion.formats if result.target == "torchscript-trace")
    for result in conversion.formats:
        tiny = least.of(result.target)
        if result.is_made and tiny and tiny.is_made:
            above = (result.peak_bytes - tiny.peak_bytes) / weights
            note = f"{result.peak_bytes >> 20} MiB, of them {tiny.peak_bytes >> 20} without a model"
            name = f"convert_memory_{result.target}"
            yield Figure(name, above, "times the model", Bound("<", TIMES_OF_MODEL), note)


def gains(settings: Settings) -> Iterator[Figure]:
    """The networks of torch to ONNX and OpenVINO alone, which are the fastest formats of most of them."""
    there = [one for one in ARCHITECTURES if "torch" in one.packages and one.is_there]
    if not there:
        raise CaseSkippedError("torch is not installed")
    found: list[float] = []
    for one in there:
        conversion = converted(one.name, settings.work, "--formats=onnx,openvino", "--batch-sizes=1").conversion
        show(one.name, conversion.formats, conversion)
        found.append(gain(conversion))
        bound = Bound(">=", 1.3) if one.name == "resnet50" else None
        yield Figure(f"convert_gain_{one.name}", found[-1], "times eager torch", bound)
    median, note = statistics.median(found), f"{len(found)} networks"
    yield Figure("convert_gain_median", median, "times eager torch", Bound(">=", 1.5), note)


SINGLE: Final[Mapping[str, Callable[[Settings], Iterator[Figure]]]] = {
    f"convert_{one.name}": partial(_one, one.name) for one in ARCHITECTURES
}
"""One architecture each, without the sums."""
