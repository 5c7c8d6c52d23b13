"""Models of a server that loads them on request: configurations are changed in place, without a restart."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psutil

from naiad.analyze.errors import AnalyzeError, TrialError
from naiad.analyze.measure.perf_level import AnalysisStoppedError, note_usage, perf_settings, run_level
from naiad.analyze.measure.source import LoadOptions
from naiad.analyze.measure.window_lengths import WindowLengths, measure_levels
from naiad.analyze.measurement import Measurement
from naiad.analyze.trial import AnalysisTrial, ModelLoad, Variant, changed_config
from naiad.perf.load.stop import Stop
from naiad.perf.measure.metrics_page import MetricsSample, read_metrics
from naiad.perf.measure.usage import usage_between
from naiad.perf.options import parse_perf
from naiad.perf.results import LevelResult, Window
from naiad.perf.settings import PerfSettings
from naiad.perf.target.metrics import MetricsTarget
from naiad.perf.target.open import open_kserve
from naiad.perf.target.protocol import TargetError


class ServedSource:
    """Measures what a server serves.

    Args:
        url: ``host:port`` of the protocol that is used.
        server: for errors, such as ``the server at localhost:8001``.
        may_load: False to measure only what is loaded (``reload_model_disable``).
    """

    def __init__(self, url: str, options: LoadOptions, stop: Stop, server: str = "", *, may_load: bool = True) -> None:
        self._where = ("-u", url, "-i", options.protocol)
        self._options = options
        self._stop = stop
        self._server = server or f"the server at {url}"
        self._may_load = may_load
        self._configs: dict[str, Mapping[str, Any]] = {}
        self._loaded: dict[str, Variant] = {}
        self._was_loaded: set[str] = set()
        self._is_closing = False
        self._lengths = WindowLengths()

    def config(self, model: str) -> Mapping[str, Any]:
        """The configuration that the repository gives a model; it is loaded when it is not."""
        if model not in self._configs:
            control = self._control(model)
            try:
                self._configs[model] = control.model_config()
                self._was_loaded.add(model)
            except TargetError as error:
                if not self._may_load:
                    raise AnalyzeError(f"{error}; reload_model_disable leaves the loading to you") from None
                self._load_first(model)
                self._configs[model] = self._control(model).model_config()
        return self._configs[model]

    def _load_first(self, model: str) -> None:
        try:
            self._control(model).load_model(None, self._wait)
        except TargetError as error:
            self._check_loads(str(error))
            self._check_reachable(model)
            raise TrialError(f"{self._server} does not load '{model}': {error}") from None

    def _check_loads(self, cause: str) -> None:
        """Raise an AnalyzeError if the server refuses every load: then nothing can be changed."""
        if "explicit model load" in cause:
            raise AnalyzeError(
                f"{self._server} loads no models on request, which analyze needs to change configurations: start it "
                "with --model-control-mode=explicit"
            )

    def _control(self, model: str) -> Any:
        settings = parse_perf(["-m", model, *self._where], {})
        # How the server is reached, also for a model that another one calls; the other flags are about the load.
        flags = self._options.flags
        flagged = self._settings(model if model in flags else next(iter(flags), model), ModelLoad(1, 1)).target
        target = replace(settings.target, headers=flagged.headers, use_tls=flagged.use_tls, tls=flagged.tls)
        try:
            return open_kserve(replace(settings, target=target))
        except TargetError as error:
            raise AnalyzeError(f"{self._server} is not reached: {error}") from None

    def _settings(self, model: str, load: ModelLoad) -> PerfSettings:
        options = self._options
        flags = options.flags.get(model, ())
        metrics = [f"--metrics-url={options.metrics_url}", f"--metrics-interval={options.metrics_interval_ms}"]
        words = metrics if options.metrics_url else ["--no-collect-metrics"]
        return perf_settings(model, (*self._where, *words), load, flags, is_recorded=options.is_recorded)

    def idle(self, seconds: float) -> dict[str, Any]:
        """What the metrics page says while nothing is measured."""
        samples: list[MetricsSample] = []
        end = time.monotonic() + seconds
        while self._options.metrics_url and (not samples or time.monotonic() < end):
            self._wait(0)
            try:
                page = MetricsTarget(self._options.metrics_url).read()
            except TargetError:
                return {}
            samples.append(read_metrics(page, time.monotonic_ns()))
            time.sleep(min(max(end - time.monotonic(), 0.0), self._options.metrics_interval_ms / 1e3))
        found = Measurement(AnalysisTrial((), ()))
        window = Window(0, 0, usage=usage_between(samples, self._options.metrics_url, 0))
        note_usage(found, window)
        return {"machine": found.machine, "gpus": found.gpus}

    def measure(self, trial: AnalysisTrial, scale: int) -> Measurement:
        """Load what the trial asks for, and measure it."""
        began = time.monotonic()
        # Composing models come first: an ensemble is loaded against what its steps are.
        for variant in (*trial.composing, *trial.variants):
            self._use(variant)
        found = self._measured(trial, scale)
        found.took_s = time.monotonic() - began
        found.machine["cpu_available_ram"] = psutil.virtual_memory().available / 1e6
        return found

    def _use(self, variant: Variant) -> None:
        if self._loaded.get(variant.model) == variant or not self._may_load:
            return
        self._wait(0)
        base = self.config(variant.model)
        if variant.is_default and variant.model not in self._loaded and variant.model in self._was_loaded:
            self._loaded[variant.model] = variant
            return
        # A load without a configuration keeps the one that the last load brought.
        text = json.dumps(changed_config(base, variant.changes))
        control = self._control(variant.model)
        self._loaded.pop(variant.model, None)
        try:
            control.load_model(text, self._wait)
        except TargetError as error:
            self._check_reachable(variant.model)
            self._check_loads(str(error))
            raise TrialError(f"'{variant.model}' is not loaded with {variant.changes_json}: {error}") from None
        self._loaded[variant.model] = variant

    def _check_reachable(self, model: str) -> None:
        """Raise an AnalyzeError if the server itself is gone: then nothing else can be measured either."""
        try:
            self._control(model).model_config()
        except TargetError as error:
            if "cannot connect" in str(error) or "connection" in str(error).lower():
                raise AnalyzeError(f"{self._server} is gone: {error}") from None

    def _wait(self, seconds: float) -> None:
        if self._stop.is_wanted and not self._is_closing:
            raise AnalysisStoppedError

    def _measured(self, trial: AnalysisTrial, scale: int) -> Measurement:
        def run(window_ms: int) -> list[LevelResult]:
            try:
                return self._levels(trial, window_ms)
            except TrialError:
                self._check_reachable(trial.variants[0].model)
                raise

        return measure_levels(trial, scale, self._options, self._lengths, run)

    def _levels(self, trial: AnalysisTrial, window_ms: int) -> list[LevelResult]:
        jobs: list[Callable[[], LevelResult]] = []
        for variant, load in zip(trial.variants, trial.loads, strict=True):
            settings = self._settings(variant.model, load)
            jobs.append(lambda settings=settings: run_level(settings, window_ms, self._stop))  # type: ignore[misc]
        if len(jobs) == 1:
            return [jobs[0]()]
        with ThreadPoolExecutor(len(jobs)) as pool:
            return [future.result() for future in [pool.submit(job) for job in jobs]]

    def close(self) -> None:
        """Load what the repository says again.

        Raises:
            AnalyzeError: a model is not as it was; the text says what to do.
        """
        self._is_closing = True
        problems = []
        for model, variant in self._loaded.items():
            if variant.is_default:
                continue
            try:
                self._restore(model)
            except (TargetError, AnalyzeError) as error:
                problems.append(f"'{model}' keeps {variant.changes_json}: {error}")
        self._loaded.clear()
        if problems:
            raise AnalyzeError("the configurations of the repository are not back: " + "; ".join(problems))

    def _restore(self, model: str) -> None:
        control = self._control(model)
        control.load_model(None, self._wait)
        if control.model_config() != self._configs[model]:
            control.load_model(json.dumps(self._configs[model]), self._wait)
