"""``--accelerator-check``: the log says whether a model is faster with its accelerators than without."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from naiad.backend_api.backend import Backend
from naiad.backends import registry
from naiad.config.freeze import accelerators
from naiad.config.problems import Origin
from naiad.config.read import ReadConfig
from naiad.config.spec import AcceleratorSpec, ModelSpec
from naiad.errors import ModelLoadError
from naiad.execution.instances.run_times import MOST_RUNS, RunTimes
from naiad.lifecycle.loading.accelerator_check import check_accelerators, without_accelerators
from naiad.lifecycle.loading.warmup_samples import automatic_samples
from support.backend_contract import config, context, spec
from support.frameworks_in_processes import looping

IDENTITY = """backend: "identity" input { name: "A" data_type: TYPE_FP32 dims: 1 }
output { name: "X" data_type: TYPE_FP32 dims: 1 }
optimization { execution_accelerators {
  cpu_execution_accelerator { name: "fast" parameters { key: "a" value: "b" } }
} }
"""


def measured(*seconds: float) -> RunTimes:
    """The times of a model with accelerators."""
    times = RunTimes()
    times.sample = "one row"
    times.seconds.extend(seconds)
    return times


@contextmanager
def logged(caplog: pytest.LogCaptureFixture, times: RunTimes, fails: str = "") -> Iterator[tuple[str, str]]:
    """Compare ``times`` with a real model that takes microseconds; level and text of the line about it."""
    model = spec(IDENTITY)

    def plain() -> tuple[Backend, ModelSpec]:
        if fails:
            raise ModelLoadError(fails)
        backend = registry.create("identity", context(Path("none")))
        backend.start(model)
        return backend, model

    with looping() as loop, caplog.at_level(logging.INFO, "naiad"):
        check_accelerators(model, times, automatic_samples(model), plain, 1, loop)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(10)
    (record,) = caplog.records
    yield record.levelname, record.getMessage()


def test_a_slower_model_is_a_warning_with_the_figures(caplog: pytest.LogCaptureFixture) -> None:
    with logged(caplog, measured(1.0, 3.0, 2.0)) as (level, text):
        assert level == "WARNING"
        assert text.startswith("model 'm' is slower with fast than without, ")
        assert "times: 2e+03 ms against " in text and "a run of sample 'one row' (medians of 3 and 50 runs)" in text
        assert "remove optimization.execution_accelerators" in text


def test_a_faster_model_is_a_line(caplog: pytest.LogCaptureFixture) -> None:
    with logged(caplog, measured(1e-9)) as (level, text):
        assert (level, text.split(",")[0]) == ("INFO", "model 'm' is faster with fast")


def test_what_cannot_be_measured_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with logged(caplog, measured(1.0), "there is no memory for it") as (level, text):
        said = "model 'm': its accelerators were not checked: without them there is no memory for it"
        assert (level, text) == ("WARNING", said)
    caplog.clear()
    with logged(caplog, measured()) as (level, text):
        assert (level, text) == ("WARNING", "model 'm': its accelerators were not checked: the warm-up sample fails")


def test_only_the_first_warm_instance_is_measured() -> None:
    times = RunTimes()
    runs: list[str] = []
    times.take("s", lambda: runs.append("first") or ())
    times.take("s", lambda: runs.append("second") or ())
    assert runs == ["first"] * MOST_RUNS and len(times.seconds) == MOST_RUNS
    failing = RunTimes()
    failing.take("s", lambda: ["no"])
    assert failing.seconds == []


def test_the_plain_model_differs_in_its_accelerators_alone() -> None:
    assert spec(IDENTITY).accelerators == (AcceleratorSpec("fast", False, {"a": "b"}),)
    written = config(IDENTITY.replace("optimization {", "optimization { graph { level: 1 }"))
    plain = without_accelerators(ReadConfig(written, Origin())).config
    assert (accelerators(plain), plain.optimization.graph.level) == ((), 1)
    assert accelerators(written) and [tensor.name for tensor in plain.input] == ["A"]
