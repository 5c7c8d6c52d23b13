"""What Python pre- and postprocessing around a network costs, in threads of the server and in processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import machine, models, python_models
from ..figures import Bound, Figure
from ..infer import Array, binary_request, check_answer
from ..load import Contender, Load, compare, generator
from ..rounds import median, median_ratio
from ..servers import Server, naiad
from ..settings import Settings

CALLERS = 16
WANTED = Bound("<=", 1.3)
WAYS = ("thread", "process")


@dataclass(frozen=True, slots=True)
class Network:
    """A network of ``layers`` layers, each of ``width`` by ``width``; ``wanted`` bounds what the steps around it cost
    in threads."""

    name: str
    width: int
    layers: int
    wanted: Bound | None


NETWORKS = (Network("deep", 1024, 12, WANTED), Network("wide", 1024, 3, WANTED), Network("small", 16, 2, None))
"""Some 500 us for a row, some 120, and next to nothing."""

PREPROCESS = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.scaled(request) for request in requests]

    def scaled(self, request):
        pixels = pb_utils.get_input_tensor_by_name(request, "PIXELS").as_numpy()
        scaled = (pixels.astype(np.float32) - 127.5) / 127.5
        return pb_utils.InferenceResponse([pb_utils.Tensor("SCALED", scaled)])
"""
POSTPROCESS = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.shares(request) for request in requests]

    def shares(self, request):
        scores = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return pb_utils.InferenceResponse([pb_utils.Tensor("SHARES", powers / powers.sum(axis=1, keepdims=True))])
"""


def measure(settings: Settings) -> Iterator[Figure]:
    """Processor time and rate of the ensembles and of the network alone, in turns, at 16 connections.

    Once with the server on one core and the load on another, and once with nothing pinned.
    """
    repository = settings.work / "ensemble-thread"
    for network in NETWORKS:
        add_network(repository, network)
        for way in WAYS:
            add_ensemble(repository, network, way)
    with naiad(repository, settings.work) as server:
        for network in NETWORKS:
            contenders = checked(server, network)
            for where in ("pinned", "free") if machine.can_pin() else ("free",):
                is_pinned = where == "pinned"
                held = machine.held_on(server.pid, machine.server_core()) if is_pinned else nullcontext()
                with held:
                    loads = compare(settings, contenders, CALLERS, pin=is_pinned)
                yield from figures(f"ensemble_thread_{network.name}_{where}", loads, network.wanted)


def figures(name: str, loads: dict[str, list[Load]], wanted: Bound | None) -> Iterator[Figure]:
    """The lines of the table for one network, pinned or not."""
    for who, found in loads.items():
        yield Figure(f"{name}_{who}_rate", median(found, _rate), "requests/s", note=f"by {generator()}")
        yield Figure(f"{name}_{who}_cpu", median(found, _cpu_us), "CPU us/request", note="server and children")
    for way in WAYS:
        bound = wanted if way == "thread" else None
        cpu = median_ratio(loads[way], loads["network"], _cpu_us)
        slower = median_ratio(loads["network"], loads[way], _rate)
        yield Figure(f"{name}_{way}_ratio", cpu, "times the network", bound, "processor time, pair by pair")
        yield Figure(f"{name}_{way}_slower", slower, "times the network", bound, "time of a request, pair by pair")


def add_network(repository: Path, network: Network) -> None:
    """The network: FP32 [width] SCALED to FP32 [width] SCORES, batched dynamically up to 64, one thread."""
    version = models.add_model(
        repository,
        network.name,
        'platform: "onnxruntime_onnx"',
        "max_batch_size: 64",
        models.tensor_field("input", "SCALED", "TYPE_FP32", [network.width]),
        models.tensor_field("output", "SCORES", "TYPE_FP32", [network.width]),
        "dynamic_batching { }",
        models.one_instance(threads=1),
    )
    nodes, given = [], "SCALED"
    for number in range(network.layers):
        made = "SCORES" if number == network.layers - 1 else f"relu{number}"
        product = f"product{number}"
        nodes += [("MatMul", [given, f"w{number}"], product), ("Relu", [product], made)]
        given = made
    inputs: list[models.TensorShape] = [("SCALED", "FLOAT", ["rows", network.width])]
    models.save_graph(version / "model.onnx", inputs, nodes, weights(network), "SCORES", network.width)


def add_ensemble(repository: Path, network: Network, way: str) -> None:
    """``<network>_<way>``: UINT8 [width] PIXELS, scaled, through the network, to FP32 [width] SHARES whose sum is 1."""
    name, dims = f"{network.name}_{way}", [network.width]
    execution = "" if way == "process" else 'parameters { key: "execution" value { string_value: "thread" } }'
    batched = "max_batch_size: 64"
    for part, code, given, made in (
        ("before", PREPROCESS, ("PIXELS", "TYPE_UINT8"), ("SCALED", "TYPE_FP32")),
        ("after", POSTPROCESS, ("SCORES", "TYPE_FP32"), ("SHARES", "TYPE_FP32")),
    ):
        tensors = models.tensor_field("input", *given, dims), models.tensor_field("output", *made, dims)
        fields = (batched, *tensors, "dynamic_batching { }", execution)
        python_models.add_python_model(repository, f"{name}_{part}", code, *fields)
    steps = ", ".join(
        f'{{ model_name: "{model}" model_version: -1 input_map {{ key: "{given}" value: "{given}" }} '
        f'output_map {{ key: "{made}" value: "{made}" }} }}'
        for model, given, made in (
            (f"{name}_before", "PIXELS", "SCALED"),
            (network.name, "SCALED", "SCORES"),
            (f"{name}_after", "SCORES", "SHARES"),
        )
    )
    ends = (
        models.tensor_field("input", "PIXELS", "TYPE_UINT8", dims),
        models.tensor_field("output", "SHARES", "TYPE_FP32", dims),
    )
    models.add_model(
        repository, name, 'platform: "ensemble"', batched, *ends, f"ensemble_scheduling {{ step [ {steps} ] }}"
    )


def checked(server: Server, network: Network) -> dict[str, Contender]:
    """The network alone and both ensembles, whose answers were right once."""
    pixels = np.random.default_rng(0).integers(0, 256, (1, network.width), np.uint8)
    scaled = ((pixels.astype(np.float32) - 127.5) / 127.5).astype(np.float32)
    scores = by_hand(network, scaled)
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    asked = {"network": (binary_request(network.name, {"SCALED": scaled}, "SCORES"), "SCORES", scores)}
    for way in WAYS:
        request = binary_request(f"{network.name}_{way}", {"PIXELS": pixels}, "SHARES")
        asked[way] = request, "SHARES", powers / powers.sum()
    for request, output, expected in asked.values():
        check_answer(server.port, request, output, expected)
    return {name: Contender(server, request) for name, (request, _, _) in asked.items()}


def weights(network: Network) -> dict[str, Array]:
    """The matrices of a network."""
    random = np.random.default_rng(7)
    shape, scale = (network.width, network.width), np.sqrt(2 / network.width)
    return {f"w{n}": (random.standard_normal(shape) * scale).astype(np.float32) for n in range(network.layers)}


def by_hand(network: Network, scaled: Array) -> Array:
    """The network in numpy."""
    for weight in weights(network).values():
        scaled = np.maximum(scaled @ weight, 0)
    return scaled


def _rate(load: Load) -> float:
    return load.rate


def _cpu_us(load: Load) -> float:
    return load.cpu_us
