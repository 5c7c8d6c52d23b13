"""Measures every configuration of eight models, for the tests of the searches of ``naiad analyze``.

    python scripts/record_configurations.py tests/analyze/recorded [MODEL ...]

Writes one JSON file for each model: its dimensions, and for each round the rates, the p99 latency and the memory of
each configuration. The rounds follow one another, so that a busy minute of the machine spoils one of them only.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from naiad.analyze.errors import TrialError
from naiad.analyze.measure.served import ServedSource
from naiad.analyze.measure.source import LoadOptions
from naiad.analyze.space.knobs import Knob, Subject
from naiad.analyze.space.space import Dimension, LoadLimits, Space
from naiad.perf.load.stop import Stop
from naiad.testing import RunningServer, serving, write_model

ROUNDS: Final = 2
_VARIED: Final = (
    (Knob.INSTANCES, (1, 2, 3, 4)),
    (Knob.MAX_BATCH_SIZE, (1, 2, 4, 8, 16)),
    (Knob.DELAY, (0, 500, 2000)),
)
_SLEEPS: Final = """
import fcntl, os, time
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        number = int(args["model_instance_name"].rpartition("_")[2])
        devices = {devices}
        self.device = open("{folder}/{name}%d" % (number % devices), "w") if devices else None

    def execute(self, requests):
        tensors = [pb_utils.get_input_tensor_by_name(request, "X").as_numpy() for request in requests]
        rows = sum(map(len, tensors))
        if self.device:
            fcntl.flock(self.device, fcntl.LOCK_EX)
        time.sleep(({cost}) / 1000)
        if self.device:
            fcntl.flock(self.device, fcntl.LOCK_UN)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]) for x in tensors]
"""
DEVICES: Final = {
    "one_device": (1, "3 + 0.4 * rows"),
    "saturating": (0, "2 + 0.25 * rows if rows <= 8 else 0.09 * rows * rows"),
    "rows": (0, "2.5 * rows"),
    "two_slots": (2, "1.5 + 0.7 * rows"),
}
"""How many devices the instances of a Python model share (0: each has its own), and the ms of a batch."""
IDENTITIES: Final = {
    "sleeping": (3, 16, ""),
    "slow": (12, 16, ""),
    "two_devices": (8, 16, 'rate_limiter { resources [ { name: "device" count: 1 } ] }'),
    "large": (6, 16384, ""),
}
"""The ms of a batch of any size, the elements of a row, and what the instances share."""
NAMES: Final = (*IDENTITIES, *DEVICES)


def write_models(repository: Path, folder: Path) -> None:
    """The eight models.

    Their time passes on what stands for a device, not on the processor, so that the figures are true on a machine that
    is busy with other things as well.
    """
    head = "dynamic_batching { } max_batch_size: 4"
    for name, (delay_ms, width, limiter) in IDENTITIES.items():
        delay = f'parameters {{ key: "execute_delay_ms" value {{ string_value: "{delay_ms}" }} }}'
        group = f"instance_group [ {{ kind: KIND_CPU count: 1 {limiter} }} ]"
        write_model(repository, name, f'backend: "identity" {head} {group} {_tensors(width)} {delay}')
    for name, (devices, cost) in DEVICES.items():
        text = _SLEEPS.format(devices=devices, folder=folder, name=name, cost=cost)
        group = "instance_group [ { kind: KIND_CPU count: 1 } ]"
        write_model(repository, name, f'backend: "python" {head} {group} {_tensors(16)}', (1,), {"model.py": text})


def _tensors(width: int) -> str:
    return (
        f'input [ {{ name: "X" data_type: TYPE_FP32 dims: [ {width} ] }} ] '
        f'output [ {{ name: "Y" data_type: TYPE_FP32 dims: [ {width} ] }} ]'
    )


def space_of(name: str, config: dict[str, Any]) -> Space:
    """The space of a model: 60 configurations."""
    dimensions = tuple(Dimension(0, knob, values) for knob, values in _VARIED)
    return Space((Subject(name, {name: config}),), dimensions, (LoadLimits(),))


def record(server: RunningServer, name: str, file: Path) -> None:
    """Measure all configurations of one model."""
    source = ServedSource(
        server.grpc_url, LoadOptions(metrics_url=f"{server.host}:{server.metrics}/metrics", window_ms=150), Stop()
    )
    space = space_of(name, dict(source.config(name)))
    rows: dict[str, list[Any]] = {}
    for number in range(ROUNDS):
        began = time.monotonic()
        for point in (None, *space.points()):
            trial = space.default_trial() if point is None else space.trial(point)
            key = "default" if point is None else " ".join(map(str, point))
            try:
                found = source.measure(trial, 1)
            except TrialError as error:
                rows.setdefault(key, []).append({"error": str(error)})
                continue
            (model,) = found.models
            rates = [round(rate, 1) for rate in model.rates]
            row = [rates, round(found.p99_ms, 3), round(found.machine.get("cpu_used_ram", 0.0), 1)]
            rows.setdefault(key, []).append(row)
        print(f"{name}: round {number + 1} of {ROUNDS} in {time.monotonic() - began:.0f} s", flush=True)
    source.close()
    named = [[dimension.knob.value, list(dimension.values)] for dimension in space.dimensions]
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in rows.items())
    config = json.dumps(space.subjects[0].config)
    file.write_text(
        f'{{"model": "{name}",\n "config": {config},\n "dimensions": {json.dumps(named)},\n "rows": {{\n{lines}\n}}}}\n'
    )


def main() -> None:
    """Record what the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        models = Path(made) / "models"
        write_models(models, Path(made))
        limits = ("--rate-limit=execution_count", "--rate-limit-resource=device:2")
        options = ("--model-repository", models, "--model-control-mode=explicit", *limits)
        with serving(Path(made) / "log", *options) as server:
            for name in sys.argv[2:] or NAMES:
                record(server, name, folder / f"{name}.json")


if __name__ == "__main__":
    main()
