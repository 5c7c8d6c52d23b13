"""Throughput and latency over batch sizes: of a converted model as it will be served, and of the source as it is."""

from __future__ import annotations

import base64
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.convert.errors import StepError
from naiad.convert.samples import Sample, load_samples, with_rows
from naiad.convert.source import load_source
from naiad.convert.step_program import write_result

if TYPE_CHECKING:
    from naiad.perf.run import PerfRun

_MODEL: Final = "measured"
_ROWS: Final = 8
_LONGEST_TEXT: Final = 64 << 20
_WIDENINGS: Final = 3
"""How often windows without a response are made longer."""


def measure_served(
    repository: str,
    samples: str,
    names: list[str],
    batching: bool,
    batch_sizes: list[int],
    window_ms: int,
    stability_percent: float,
    max_trials: int,
    cutoff: float | None,
    first_ms: float = 0.0,
    budget_s: float = math.inf,
) -> dict[str, Any]:
    """Measure the model ``measured`` of a repository by the load generator of ``naiad perf``, in this process.

    Batch sizes are tried in ascending order, until one fails or gains less than ``cutoff``, or those before it took
    ``budget_s``. What was measured so far is written after each, so that it stays when a larger batch ends the process.
    """
    began = time.monotonic()
    data = Path("input.json")
    shapes = _write_input(data, load_samples(samples), names, batching)
    levels: list[dict[str, float]] = []
    note = ""
    for size in batch_sizes if batching else [1]:
        taken_s = time.monotonic() - began
        if levels and taken_s > budget_s:
            note = f"a batch of {size} was not tried: the smaller ones took {taken_s:.0f} s"
            break
        write_result({"value": _found(levels, f"batch {size} was being measured"), "failure": None})
        try:
            # A slow model gets longer windows from here on: three of them have to agree.
            expected_ms = 5 * levels[-1]["mean_ms"] * size / levels[-1]["batch"] if levels else 0.0
            window_ms = max(window_ms, int(expected_ms), 0 if levels else int(5 * first_ms))
            levels.append(_level(repository, data, shapes, size, batching, window_ms, stability_percent, max_trials))
        except Exception as error:
            if not levels:
                raise StepError(f"it cannot be served: {error}", "see log.txt in the step's folder") from error
            note = f"batch {size} fails: {error}"
            break
        if _gains_nothing(levels, cutoff):
            note = f"a batch of {size} gains nothing"
            break
    return _found(levels, note)


def measure_source(
    model: str,
    samples: str,
    batching: bool,
    batch_sizes: list[int],
    window_ms: int,
    max_trials: int,
    cutoff: float | None,
) -> dict[str, Any]:
    """Call the source itself, one call after another, in this process."""
    source = load_source(model)
    first = load_samples(samples)[0]
    levels: list[dict[str, float]] = []
    note = ""
    for size in batch_sizes if batching else [1]:
        sample = with_rows([first], size) if batching else first
        write_result({"value": _found(levels, f"batch {size} was being measured"), "failure": None})
        for _ in range(2):
            source.call(sample)
        durations: list[int] = []
        end = time.monotonic_ns() + 3 * window_ms * 1_000_000
        while time.monotonic_ns() < end or len(durations) < 3:
            began = time.perf_counter_ns()
            source.call(sample)
            durations.append(time.perf_counter_ns() - began)
        levels.append(_figures(size, np.array(durations), size * len(durations) / (sum(durations) / 1e9)))
        if _gains_nothing(levels, cutoff):
            note = f"a batch of {size} gains nothing"
            break
    return _found(levels, note)


def _gains_nothing(levels: list[dict[str, float]], cutoff: float | None) -> bool:
    """Whether the last two batch sizes have hardly more throughput than those before them."""
    if cutoff is None or len(levels) < 3:
        return False
    return max(_rates(levels[-2:])) < (1 + cutoff) * max(_rates(levels[:-2]))


def _level(
    repository: str,
    data: Path,
    shapes: list[str],
    size: int,
    batching: bool,
    window_ms: int,
    stability_percent: float,
    max_trials: int,
) -> dict[str, float]:
    more = [*shapes, *(["-b", str(size)] if batching else [])]
    run = _run(repository, data, more, window_ms, stability_percent, max_trials)
    for _ in range(_WIDENINGS):
        if not _is_silent(run):
            break
        # A format may be many times slower than the source by which the window was chosen.
        window_ms *= 4
        run = _run(repository, data, more, window_ms, stability_percent, max_trials)
    report = run.report
    if run.failure or not report.levels:
        raise StepError(run.failure or "nothing was measured")
    level = report.levels[0]
    if level.merged.errors:
        (_, message), _count = level.merged.errors.most_common(1)[0]
        raise StepError(f"requests fail: {message}")
    latency = level.merged.latency
    return {
        "batch": size,
        "rate": level.inference_rate,
        "p50_ms": latency.percentile(50) / 1e6,
        "p99_ms": latency.percentile(99) / 1e6,
        "mean_ms": latency.mean / 1e6,
        "is_stable": float(not level.unstable_reason),
    }


def _run(
    repository: str, data: Path, more: list[str], window_ms: int, stability_percent: float, max_trials: int
) -> PerfRun:
    """A run of one level, at its end."""
    from naiad.perf.options import parse_perf
    from naiad.perf.run import PerfRun

    words = ["-m", _MODEL, "--service-kind=in_process", f"--model-repository={repository}"]
    words += [f"--measurement-interval={window_ms}", f"--stability-percentage={stability_percent:g}"]
    words += [f"--max-trials={max_trials}", f"--input-data={data}", "--concurrency-range=1", *more]
    run = PerfRun(parse_perf(words, {}))
    run.run()
    return run


def _is_silent(run: PerfRun) -> bool:
    """Whether no window had a response, not even an error."""
    return any(not level.merged.requests and not level.merged.errors for level in run.report.levels)


def _figures(size: int, durations: np.ndarray[Any, Any], rate: float) -> dict[str, float]:
    p50, p99 = (float(np.percentile(durations, percent)) / 1e6 for percent in (50, 99))
    mean = float(durations.mean()) / 1e6
    return {"batch": size, "rate": rate, "p50_ms": p50, "p99_ms": p99, "mean_ms": mean, "is_stable": 1.0}


def _found(levels: list[dict[str, float]], note: str) -> dict[str, Any]:
    return {"levels": levels, "note": note}


def _rates(levels: list[dict[str, float]]) -> list[float]:
    return [level["rate"] for level in levels]


def _write_input(file: Path, samples: list[Sample], names: list[str], batching: bool) -> list[str]:
    """The samples as ``naiad perf`` reads them: a step is one row, or one sample without batching."""
    sample = samples[0]
    rows = min(_ROWS, next(iter(sample.values())).shape[0]) if batching else 1
    steps = []
    for row in range(rows):
        arrays = [array[row] if batching else array for array in sample.values()]
        steps.append({name: _tensor(array) for name, array in zip(names, arrays, strict=True)})
        if sum(array.nbytes for array in arrays) * len(steps) > _LONGEST_TEXT:
            break
    file.write_text(json.dumps({"data": steps}), encoding="utf-8")
    return []


def _tensor(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    shape = list(array.shape) or [1]
    if array.dtype.kind in "SUO":
        return {"content": [str(one) for one in array.ravel()], "shape": shape}
    raw = np.ascontiguousarray(array)
    return {"b64": base64.b64encode(raw.tobytes()).decode(), "shape": shape}
