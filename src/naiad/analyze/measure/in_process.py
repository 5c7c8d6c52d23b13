"""Models that run in this process (``c_api``), from copies of the repository with changed configurations."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from naiad.analyze.errors import AnalyzeError, TrialError
from naiad.analyze.measure.perf_level import perf_settings, run_level
from naiad.analyze.measure.source import LoadOptions
from naiad.analyze.measure.window_lengths import WindowLengths, measure_levels
from naiad.analyze.measurement import Measurement
from naiad.analyze.pbtxt import pbtxt_of
from naiad.analyze.trial import AnalysisTrial, Variant, changed_config
from naiad.config.export import config_json
from naiad.errors import NaiadError
from naiad.perf.load.stop import Stop
from naiad.perf.results import LevelResult
from naiad.server.embedded import EmbeddedServer


class InProcessSource:
    """Measures models without a server.

    Args:
        repository: the folder with the models; it is not written to.
    """

    def __init__(self, repository: Path, options: LoadOptions, stop: Stop) -> None:
        self._repository = repository.absolute()
        self._options = options
        self._stop = stop
        self._folder = Path(tempfile.mkdtemp(prefix="naiad-analyze-"))
        self._configs: dict[str, Mapping[str, Any]] = {}
        self._lengths = WindowLengths()

    def config(self, model: str) -> Mapping[str, Any]:
        """The configuration of a model, completed."""
        if model not in self._configs:
            self._configs[model] = asyncio.run(self._read(model))
        return self._configs[model]

    async def _read(self, model: str) -> dict[str, Any]:
        try:
            server = EmbeddedServer(self._repository)
        except NaiadError as error:
            raise AnalyzeError(f"cannot serve '{self._repository}' in this process: {error}") from None
        try:
            await server.load(model)
            found: dict[str, Any] = json.loads(config_json(server.engine.model_config(model, "")))
        except NaiadError as error:
            raise TrialError(f"cannot load '{model}' in this process: {error}") from None
        finally:
            await server.close()
        return found

    def idle(self, seconds: float) -> dict[str, Any]:
        """There is no server that could be idle."""
        return {}

    def measure(self, trial: AnalysisTrial, scale: int) -> Measurement:
        """Load a copy of the models, and measure it."""
        if len(trial.variants) > 1:
            raise AnalyzeError(
                "c_api measures one model at a time: use triton_launch_mode local for models beside each other"
            )
        began = time.monotonic()
        (variant,), (load,) = trial.variants, trial.loads
        copy = self._copy(trial)
        flags = self._options.flags.get(variant.model, ())
        where = ("--service-kind=in_process", f"--model-repository={copy}")
        settings = perf_settings(variant.model, where, load, flags, is_recorded=self._options.is_recorded)

        def run(window_ms: int) -> list[LevelResult]:
            return [run_level(settings, window_ms, self._stop)]

        found = measure_levels(trial, scale, self._options, self._lengths, run)
        found.machine["cpu_available_ram"] = psutil.virtual_memory().available / 1e6
        found.took_s = time.monotonic() - began
        return found

    def _copy(self, trial: AnalysisTrial) -> Path:
        """A repository with links to all models, and changed configurations of those that the trial is about."""
        copy = self._folder / "models"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        changed = {variant.model: variant for variant in trial.setup if not variant.is_default}
        for folder in self._repository.iterdir():
            if folder.is_dir() and folder.name not in changed:
                (copy / folder.name).symlink_to(folder)
        for variant in changed.values():
            self._write(variant, copy / variant.model)
        return copy

    def _write(self, variant: Variant, folder: Path) -> None:
        folder.mkdir()
        for file in (self._repository / variant.model).iterdir():
            if file.name != "config.pbtxt":
                (folder / file.name).symlink_to(file)
        text = pbtxt_of(changed_config(self.config(variant.model), variant.changes))
        (folder / "config.pbtxt").write_text(text)

    def close(self) -> None:
        """Remove the copies."""
        shutil.rmtree(self._folder, ignore_errors=True)
