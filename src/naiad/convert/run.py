"""A whole conversion: describe, then make, verify and measure each format, choose one and publish it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from naiad.convert import paths
from naiad.convert.choose import batching_of, choose
from naiad.convert.errors import ConvertError, SourceError, StepFailure
from naiad.convert.formats import FORMATS, Precision
from naiad.convert.process import StepResult, run_step_process
from naiad.convert.publish import can_warm_up, config_of, link_for_measuring, publish
from naiad.convert.results import BatchLevels, Conversion, FormatResult
from naiad.convert.samples import load_samples
from naiad.convert.settings import ConvertSettings
from naiad.convert.signature import SourceSignature
from naiad.convert.source import SourceKind

REPORT: Final = "report.json"
Progress = Callable[[str], None]


class Converter:
    """One conversion.

    Args:
        settings: what is asked for.
        progress: is told one line about each step, before and after it.
        has_samples: whether the samples are in ``work/samples`` already.
        earlier: a conversion in the same folder, without its source: the formats that were made of the source
            itself are taken as they are, the others are made again.
    """

    def __init__(
        self,
        settings: ConvertSettings,
        progress: Progress | None = None,
        has_samples: bool = False,
        earlier: Conversion | None = None,
    ) -> None:
        self.settings = settings
        name = settings.name or default_name(settings.model)
        self.conversion = Conversion(settings.model, name, str(settings.work), str(settings.strategy))
        self._say = progress or (lambda line: None)
        self._has_samples = has_samples
        self._earlier = earlier

    @property
    def signature(self) -> SourceSignature:
        """The model's tensors, once they are known."""
        return SourceSignature.from_json(self.conversion.described["signature"])

    @property
    def chosen(self) -> FormatResult:
        """The best format.

        Raises:
            ConvertError: there is none.
        """
        found = self.conversion.of(self.conversion.chosen)
        if found is None:
            raise ConvertError(self.conversion.reason)
        return found

    def run(self) -> Conversion:
        """Do all of it. What fails for one format is in its result, and a failed publication in the conversion's.

        Raises:
            ConvertError: the model or its samples cannot be used.
        """
        began = time.monotonic()
        self.settings.work.mkdir(parents=True, exist_ok=True)
        if self._earlier is None:
            self._describe()
            self._make_all()
            self._measure_source()
        else:
            self.conversion.described = self._earlier.described
            self._make_all()
        for result in self.conversion.formats:
            if result.is_made and result.is_wanted:
                self._verify(result)
                self._measure(result)
        settings, conversion = self.settings, self.conversion
        conversion.chosen, conversion.reason = choose(conversion.formats, settings.strategy, settings.latency_budget_ms)
        conversion.seconds = time.monotonic() - began
        self._save()
        if conversion.chosen and settings.repository is not None and not settings.is_dry:
            try:
                self.publish(settings.repository)
            except ConvertError as error:
                # What was converted and measured is worth a report all the same.
                conversion.publish_failure = str(error)
                self._save()
        return conversion

    def publish(self, repository: Path) -> Path:
        """Put the best format into a repository; return the model's folder.

        Raises:
            ConvertError: there is none, or it cannot be written.
        """
        result = self.chosen
        folder = publish(
            result,
            self.signature,
            repository,
            self.conversion.name,
            batching_of(_measured(result), self.signature.is_batching, self.settings.latency_budget_ms),
            load_samples(self.settings.work / "samples")[0],
            self.settings.labels,
        )
        self.conversion.published = str(folder)
        self._save()
        return folder

    def config(self) -> str:
        """The config.pbtxt of the best format.

        Raises:
            ConvertError: there is none.
        """
        result, labels = self.chosen, self.settings.labels
        batching = batching_of(_measured(result), self.signature.is_batching, self.settings.latency_budget_ms)
        sample = load_samples(self.settings.work / "samples")[0] if can_warm_up(result, self.signature) else None
        name = labels.name if labels else ""
        return config_of(result, self.signature, self.conversion.name, batching, labels=name, sample=sample)

    def _describe(self) -> None:
        settings = self.settings
        found = self._step(
            "describe",
            "naiad.convert.steps.describe:describe",
            {
                "model": _absolute(settings.model),
                "data": "" if self._has_samples else _absolute(settings.data),
                "folder": str(settings.work.resolve()),
                "count": settings.sample_count,
                "batch": settings.batch,
                "batching": settings.batching,
                "largest": min(self.settings.measuring.sizes[-1], 16),
                "input_names": list(settings.input_names),
                "output_names": list(settings.output_names),
            },
            settings.work / "describe",
        )
        if found.failure is not None:
            raise SourceError(str(found.failure), str(found.script))
        self.conversion.described = found.value
        if found.value["is_random"]:
            self.conversion.notes.append(
                "the model's outputs differ from call to call: call eval(), or fix its seed, for a fair comparison"
            )

    def _make_all(self) -> None:
        kind = SourceKind(self.conversion.described["kind"])
        wanted = self.settings.formats
        for path in paths.paths_to(kind, wanted):
            is_wanted = not wanted or path.target in wanted
            # Without the user's own metric nobody could say whether they are good enough.
            is_judged = FORMATS[path.target].precision is not Precision.INT8 or self.settings.verification.is_users
            if not wanted and not is_judged:
                continue
            make = self._make if self._earlier is None or path.parents else self._taken
            self.conversion.formats.append(make(path, is_wanted))
        unreachable = [target for target in wanted if self.conversion.of(target) is None]
        if unreachable:
            self.conversion.notes.append(f"a model of {kind} cannot become {', '.join(unreachable)}")

    def _make(self, path: paths.Path, is_wanted: bool) -> FormatResult:
        result = FormatResult(path.target, is_wanted, precision=self._precision(path.target))
        candidates = [self.conversion.of(parent) for parent in path.parents]
        parents = [parent for parent in candidates if parent is not None and parent.is_made]
        if path.parents and not parents:
            tried = [parent.target for parent in candidates if parent is not None]
            reason = f"it is made from {' or '.join(tried)}, which failed"
            result.failure, result.failed_in = StepFailure(reason), "export"
            return result
        # Another parent is tried when the first one fails.
        for number, parent in enumerate(parents or [None]):
            folder = self.settings.work / path.target / ("export" if not number else f"export-{number + 1}")
            try:
                arguments = self._arguments(path, parent)
            except OSError as error:
                result.failure, result.failed_in = StepFailure(f"{folder} cannot be written: {error}"), "export"
                break
            done = self._step(path.target, path.function, arguments, folder)
            result.seconds, result.peak_bytes = result.seconds + done.seconds, max(result.peak_bytes, done.peak_bytes)
            result.frameworks = done.frameworks
            self._note_failure(result, done, "export")
            if done.failure is None:
                result.made = done.value
                result.size_bytes = _size(Path(done.value["file"]).parent)
                break
            if done.failure.is_missing_package:
                break
        return result

    def _taken(self, path: paths.Path, is_wanted: bool) -> FormatResult:
        """A format of the earlier conversion, to be verified and measured anew."""
        before = self._earlier.of(path.target) if self._earlier else None
        if before is None or before.made is None:
            failure = StepFailure("it is made from the source, which a package does not have")
            return FormatResult(path.target, is_wanted, failure=failure, failed_in="export")
        fields = ("made", "seconds", "peak_bytes", "size_bytes", "precision", "frameworks")
        return FormatResult(path.target, is_wanted, **{name: getattr(before, name) for name in fields})

    def _arguments(self, path: paths.Path, parent: FormatResult | None) -> dict[str, Any]:
        settings = self.settings
        folder = settings.work.resolve() / path.target / "model"
        # Of an earlier try.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        made = parent.made if parent else None
        known: dict[str, Any] = {
            "model": _absolute(settings.model),
            "samples": str(settings.work.resolve() / "samples"),
            "signature": self.conversion.described["signature"],
            "opset": settings.opset,
            "names": {"inputs": made["inputs"], "outputs": made["outputs"]} if made else {},
        }
        arguments = {name: known[name] for name in path.takes}
        if made:
            arguments["parent"] = made["file"]
        return {**arguments, **path.extra, "file": str(folder / FORMATS[path.target].file)}

    def _verify(self, result: FormatResult) -> None:
        asked = self.settings.verification
        done = self._step(
            f"{result.target}: verify",
            "naiad.convert.steps.verify:verify",
            {
                "target": result.target,
                "made": result.made,
                "signature": self.conversion.described["signature"],
                "folder": str(self.settings.work.resolve()),
                "precision": result.precision,
                "metric": str(asked.metric or ""),
                "minimum": asked.minimum,
                "function": _absolute(asked.function) if asked.function else "",
            },
            self.settings.work / result.target / "verify",
        )
        self._note_failure(result, done, "verification")
        if done.failure is None:
            result.verified = done.value

    def _measure(self, result: FormatResult) -> None:
        if result.verified is None or not result.verified["is_good"]:
            return
        if not FORMATS[result.target].is_served:
            return
        if (failure := too_long_to_compile(self.conversion, result.target)) is not None:
            result.failure, result.failed_in = failure, "measurement"
            return
        folder = self.settings.work / result.target / "measure"
        sizes, asked = self.settings.measuring.sizes, self.settings.measuring
        try:
            link_for_measuring(result, self.signature, folder / "repository", "measured", sizes[-1])
        except OSError as error:
            result.failure, result.failed_in = StepFailure(f"{folder} cannot be written: {error}"), "measurement"
            return
        done = self._step(
            f"{result.target}: measure",
            "naiad.convert.steps.measure:measure_served",
            {
                "repository": str((folder / "repository").resolve()),
                "samples": str(self.settings.work.resolve() / "samples"),
                "names": (result.made or {})["inputs"],
                "batching": self.signature.is_batching,
                "batch_sizes": sizes,
                "window_ms": asked.window_ms,
                "stability_percent": asked.stability_percent,
                "max_trials": asked.max_trials,
                "cutoff": asked.cutoff,
                "first_ms": self._source_ms(),
                "budget_s": asked.budget_s,
            },
            folder,
        )
        measured = _levels(done)
        if measured is not None:
            result.measured = measured
            if done.failure is not None:
                # The batches before the one that ended the step count.
                measured.note = f"a larger batch ended the step: {done.failure.reason}"
        else:
            self._note_failure(result, done, "measurement")

    def _source_ms(self) -> float:
        """The mean time of one call of the source with its smallest batch; 0 when it was not measured."""
        source = self.conversion.source
        return source.first.mean_ms if source and source.levels else 0.0

    def _measure_source(self) -> None:
        asked = self.settings.measuring
        done = self._step(
            "source: measure",
            "naiad.convert.steps.measure:measure_source",
            {
                "model": _absolute(self.settings.model),
                "samples": str(self.settings.work.resolve() / "samples"),
                "batching": self.signature.is_batching,
                "batch_sizes": self.settings.measuring.sizes,
                "window_ms": asked.window_ms,
                "max_trials": asked.max_trials,
                "cutoff": asked.cutoff,
            },
            self.settings.work / "source",
        )
        self.conversion.source = _levels(done)
        if self.conversion.source is None and done.failure is not None:
            self.conversion.notes.append(f"the source itself was not measured: {done.failure}")

    def _step(self, name: str, function: str, arguments: dict[str, Any], folder: Path) -> StepResult:
        self._say(f"{name} ...")
        done = run_step_process(name, function, arguments, folder.resolve(), self.settings.limits)
        outcome = f"failed: {done.failure}" if done.failure is not None else "done"
        self._say(f"{name}: {outcome} ({done.seconds:.1f} s)")
        return done

    def _note_failure(self, result: FormatResult, done: StepResult, stage: str) -> None:
        result.failure, result.failed_in = done.failure, stage if done.failure is not None else ""
        result.script = str(done.script) if done.failure is not None else ""

    def _precision(self, target: str) -> str:
        """Of a format's weights, and no better than the source's own."""
        own = FORMATS[target].precision
        return str(own) if own is not Precision.FP32 else str(self.conversion.described["precision"])

    def _save(self) -> None:
        text = json.dumps(self.conversion.as_json(), indent=1)
        try:
            (self.settings.work / REPORT).write_text(text, encoding="utf-8")
        except OSError as error:
            # The report that its caller shows does not come from the file.
            note = f"{self.settings.work / REPORT} cannot be written: {error}"
            self.conversion.notes += [note] if note not in self.conversion.notes else []


def too_long_to_compile(conversion: Conversion, target: str) -> StepFailure | None:
    """Why a format is not served in order to measure it: the server would compile it, and that took too long before."""
    compiled = conversion.of("aotinductor")
    if target != "torch-export" or compiled is None or compiled.failure is None or not compiled.failure.is_time_limit:
        return None
    reason = "the server compiles it when it loads, as aotinductor was, which was ended for its time"
    return StepFailure(reason, "", "raise --time-limit, or leave this format out")


def default_name(model: str) -> str:
    """A model's name from where it is: the function's, or the file's without its ending."""
    before, _, function = model.rpartition(":")
    if before.endswith(".py"):
        return function.replace(".", "_")
    return Path(model).stem or "model"


def _absolute(place: str) -> str:
    """A place that means the same in another folder: the steps run in folders of their own."""
    if place.startswith("pickle:"):
        return f"pickle:{Path(place.removeprefix('pickle:')).resolve()}"
    before, _, name = place.rpartition(":")
    return f"{Path(before).resolve()}:{name}" if before.endswith(".py") else str(Path(place).resolve())


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _levels(done: StepResult) -> BatchLevels | None:
    """What a step measured; None when it came to nothing."""
    if not done.value or not done.value["levels"]:
        return None
    # The step cannot tell: its model is unloaded at its end, and may run in a process of its own.
    return BatchLevels.from_json({**done.value, "rss_bytes": done.peak_bytes})


def _measured(result: FormatResult) -> BatchLevels:
    assert result.measured is not None, "only measured formats are chosen"
    return result.measured


def made_formats(results: Sequence[FormatResult]) -> list[str]:
    """The names of the formats that were made."""
    return [result.target for result in results if result.is_made]
