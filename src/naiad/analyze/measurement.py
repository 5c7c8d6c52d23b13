"""What a measurement found, under the names that the reference's metrics have."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Final

from naiad.analyze.trial import AnalysisTrial, ModelLoad, Variant

HIGHER_IS_BETTER: Final = frozenset(
    {"perf_throughput", "gpu_free_memory", "gpu_utilization", "cpu_free_ram", "cpu_available_ram"}
)
"""Of all other metrics less is better."""
LATENCIES: Final = ("perf_latency_avg", "perf_latency_p90", "perf_latency_p95", "perf_latency_p99")
PARTS: Final = (
    "perf_client_send_recv",
    "perf_server_queue",
    "perf_server_compute_input",
    "perf_server_compute_infer",
    "perf_server_compute_output",
)
"""What a latency is made of, in the order in which it is stacked."""
METRICS: Final = (
    *("perf_throughput", "perf_latency_p50", *LATENCIES, *PARTS, "perf_client_response_wait"),
    *("gpu_used_memory", "gpu_free_memory", "gpu_total_memory", "gpu_utilization", "gpu_power_usage"),
    *("cpu_used_ram", "cpu_available_ram", "cpu_utilization"),
)
ALIASES: Final = {"perf_latency": "perf_latency_p99", "cpu_free_ram": "cpu_available_ram"}


@dataclass(slots=True)
class ModelFigures:
    """One model of a measurement: durations in ms, throughput in inferences a second.

    Attributes:
        figures: by the name of the metric.
        rates: the throughput of each window.
        latencies: the p99 of each window.
    """

    model: str
    figures: dict[str, float] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Measurement:
    """A trial and what it found.

    Attributes:
        models: in the order of the trial's variants; empty where it failed.
        machine: of all models together: memory in MB, utilisation in %, power in W.
        gpus: the same by the GPU's UUID.
        window_ms: the length of each window.
        windows: how many there were.
        error: why there are no figures; empty where there are.
        took_s: with loading.
    """

    trial: AnalysisTrial
    models: list[ModelFigures] = field(default_factory=list)
    machine: dict[str, float] = field(default_factory=dict)
    gpus: dict[str, dict[str, float]] = field(default_factory=dict)
    window_ms: int = 0
    windows: int = 0
    error: str = ""
    took_s: float = 0.0

    def figure(self, metric: str, place: int = 0) -> float | None:
        """A metric of one model, or of the machine; None where it is not known."""
        name = ALIASES.get(metric, metric)
        if self.error:
            return None
        if name in self.machine:
            return self.machine[name]
        return self.models[place].figures.get(name)

    @property
    def throughput(self) -> float:
        """Inferences a second of all models; 0 where it failed."""
        return sum(model.figures.get("perf_throughput", 0.0) for model in self.models)

    @property
    def p99_ms(self) -> float:
        """The longest p99 of the models."""
        return max((model.figures.get("perf_latency_p99", 0.0) for model in self.models), default=0.0)


def merged(measurements: list[Measurement]) -> Measurement:
    """Several measurements of one trial as one: each figure is the middle one, windows are kept.

    Failed ones count only where nothing else is there.
    """
    good = [one for one in measurements if not one.error]
    if len(good) < 2:
        return (good or measurements)[-1]
    found = Measurement(
        good[0].trial, window_ms=max(one.window_ms for one in good), took_s=sum(one.took_s for one in good)
    )
    for place, first in enumerate(good[0].models):
        same = [one.models[place] for one in good]
        names = set.intersection(*(set(one.figures) for one in same))
        figures = {name: median(one.figures[name] for one in same) for name in first.figures if name in names}
        rates = [rate for one in same for rate in one.rates]
        found.models.append(ModelFigures(first.model, figures, rates, [v for one in same for v in one.latencies]))
    found.machine, found.gpus = good[-1].machine, good[-1].gpus
    return found


def to_plain(measurement: Measurement) -> dict[str, Any]:
    """As JSON has it."""
    plain = asdict(measurement)
    trial = measurement.trial
    plain["trial"] = {
        "variants": [[variant.model, variant.changes] for variant in trial.variants],
        "composing": [[variant.model, variant.changes] for variant in trial.composing],
        "loads": [asdict(load) for load in trial.loads],
    }
    return plain


def from_plain(plain: dict[str, Any]) -> Measurement:
    """Back from JSON.

    Raises:
        ValueError, LookupError, TypeError: it is none.
    """
    given = plain["trial"]
    trial = AnalysisTrial(
        tuple(Variant.of(model, changes) for model, changes in given["variants"]),
        tuple(ModelLoad(**load) for load in given["loads"]),
        tuple(Variant.of(model, changes) for model, changes in given["composing"]),
    )
    models = [ModelFigures(**model) for model in plain["models"]]
    rest = {name: plain[name] for name in ("machine", "gpus", "window_ms", "error", "took_s")}
    return Measurement(trial, models, windows=plain.get("windows", 0), **rest)
