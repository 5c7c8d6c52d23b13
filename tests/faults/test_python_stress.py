"""Python models under everything at once: mixed batches, cancelled requests, dying processes, reloads.

Whatever happens, each request is answered exactly once and by its own answer, all counters end at zero, and no process,
descriptor or segment is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Any, Final

import numpy as np
import psutil
import pytest

from naiad.engine.engine import Engine
from naiad.errors import BackendError, CancelledError, ModelLoadError, NaiadError, ServerStoppingError, UnavailableError
from naiad.execution.model.loaded_model import LoadedModel
from naiad.lifecycle.loading.load_version import LoadSettings
from naiad.lifecycle.manager import ModelManager
from naiad.repository.catalog import Catalog
from naiad.request import InferRequest, Outputs, RequestOptions
from support.child_processes import children
from support.event_loops import run, until
from support.kept_objects import kept_of
from support.worker_models import mapped_segments, open_files

SEEDS: Final = (1, 2)
SECONDS: Final = 8.0
LAST_S: Final = 30.0
SIZES: Final = (0, 1, 3, 16, 17, 1000, 8191, 8192, 50_000)
# What a model does with a request, and how often.
DEEDS: Final = {
    "answer": 2000,
    "fail": 20,
    "raise": 5,
    "give back": 20,
    "later": 30,
    "slowly": 5,
    "other type": 30,
    "parameters": 20,
    "let go": 10,
    "sort": 20,
    "die": 1,
}
CONFIG: Final = """
backend: "python"
max_batch_size: 16
input [{ name: "x" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ -1 ] }]
instance_group [{ count: 2 kind: KIND_CPU }]
"""
TEXTS: Final = """
input [{ name: "s" data_type: TYPE_STRING dims: [ -1 ] }]
output [{ name: "t" data_type: TYPE_STRING dims: [ -1 ] }]
"""
BATCHING: Final = "dynamic_batching { max_queue_delay_microseconds: 500 }\n"
DECOUPLED: Final = "model_transaction_policy { decoupled: true }\n"
MODELS: Final = {
    "numbers": BATCHING,
    "one by one": "",
    "texts": TEXTS + BATCHING,
    "decoupled": TEXTS + BATCHING + DECOUPLED,
}
# The answers are twice x and the id with each text; the deed is a parameter.
SOURCE: Final = """
import json, os, queue, random, signal, threading, time
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.decoupled = "DECOUPLED" == json.loads(args["model_config"])["parameters"]["kind"]["string_value"]
        self.later = queue.Queue()
        self.returned = set()
        threading.Thread(target=self.answer_later, daemon=True).start()

    def answer(self, request, deed):
        x = request.inputs()[0].as_numpy()
        outputs = [pb_utils.Tensor("y", (2 * x).astype(np.float64) if deed == "other type" else 2 * x)]
        name = request.request_id().encode()
        for tensor in request.inputs()[1:]:
            s = [name + one for one in tensor.as_numpy().ravel()]
            texts = np.empty((1, len(s)), object)
            texts[0] = s
            outputs.append(pb_utils.Tensor("t", texts))
        parameters = {"id": request.request_id(), "number": random.randrange(10**9)} if deed == "parameters" else None
        return pb_utils.InferenceResponse(outputs, parameters=parameters)

    def answer_later(self):
        while True:
            response, sender = self.later.get()
            time.sleep(0.002)
            self.send(sender, response)

    def send(self, sender, response):
        if self.decoupled:
            sender.send(response)
            sender.send(response)
        sender.send(*(() if self.decoupled else (response,)), flags=1)

    def execute(self, requests):
        deeds = [json.loads(r.parameters()).get("deed", "answer") for r in requests]
        if "sort" in deeds:
            pairs = sorted(zip(requests, deeds), key=lambda p: p[0].request_id())
            requests[:] = [r for r, _ in pairs]
            deeds = [d for _, d in pairs]
        if "die" in deeds:
            os.kill(os.getpid(), signal.SIGKILL)
        if "raise" in deeds:
            raise ValueError("a batch that fails")
        if "slowly" in deeds:
            time.sleep(0.03)
        answers = [self.one(r, d) for r, d in zip(requests, deeds)]
        return None if self.decoupled else answers

    def one(self, request, deed):
        if deed == "give back" and request.request_id() not in self.returned:
            self.returned.add(request.request_id())
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        if deed == "let go":
            request.get_response_sender()
            return None
        if deed == "fail":
            answer = pb_utils.InferenceResponse(error=pb_utils.TritonError("a request that fails"))
        else:
            answer = self.answer(request, deed)
        if deed == "later":
            self.later.put((answer, request.get_response_sender()))
            return None
        if self.decoupled:
            self.send(request.get_response_sender(), answer)
        return answer
"""


class Caller(InferRequest):
    """A request that knows its right answer, and notes all that it gets."""

    __slots__ = ("cancelled", "deed", "is_over", "problems", "result")

    def __init__(self, options: RequestOptions, deed: str, inputs: Mapping[str, np.ndarray], id: str) -> None:
        super().__init__(options, inputs, id, monotonic_ns())
        self.deed = deed
        self.cancelled = False
        self.is_over = False
        self.problems: list[str] = []
        self.result = ""

    def respond(self, outputs: Mapping[str, np.ndarray], error: NaiadError | None) -> None:
        self._take(None if error is not None else outputs, error, True)

    def respond_part(self, outputs: Mapping[str, np.ndarray] | None, error: NaiadError | None, final: bool) -> None:
        self._take(outputs, error, final)

    def _take(self, outputs: Mapping[str, np.ndarray] | None, error: NaiadError | None, final: bool) -> None:
        if self.is_over:
            self.problems.append(f"an answer after the end: {outputs} {error}")
        self.is_over = final
        if error is not None:
            self.result = type(error).__name__
            if isinstance(error, CancelledError) and not self.cancelled:
                self.problems.append("cancelled by nobody")
        elif outputs is not None:
            self.result = self.result or "answer"
            self._check(outputs)

    def _check(self, outputs: Mapping[str, np.ndarray]) -> None:
        x, y = self.inputs["x"], outputs["y"]
        if y.shape != x.shape or not (y == 2 * x).all():
            self.problems.append(f"a wrong answer: {y} for {x}")
        texts = [self.id.encode() + one for one in self.inputs["s"].ravel()] if "s" in self.inputs else None
        if texts != (outputs["t"].ravel().tolist() if "t" in outputs else None):
            self.problems.append(f"wrong texts: {outputs.get('t')}, expected {texts}")
        if (y.dtype == np.float64) is not (self.deed == "other type"):
            self.problems.append(f"{y.dtype} for a request that asked for: {self.deed}")
        if self.deed == "parameters" and not (isinstance(outputs, Outputs) and outputs.parameters["id"] == self.id):
            self.problems.append("the parameters of another request")


class Stress:
    """Random requests to some models of one manager, and all that can happen to them."""

    def __init__(self, repository: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.repository = repository
        self.manager = ModelManager(LoadSettings(lambda backend: {}, cores=2), 2, Catalog((repository,)), True)
        self.engine = Engine(self.manager, "test", True)
        self.manager.loaded = True
        self.callers: list[Caller] = []
        self.accepted: Counter[LoadedModel] = Counter()
        self.refused = 0
        self.options: dict[Any, RequestOptions] = {}
        self.happened: Counter[str] = Counter()
        self.reloads: set[asyncio.Task[None]] = set()

    def write(self, name: str, version: int) -> None:
        folder = self.repository / name
        (folder / "1").mkdir(parents=True, exist_ok=True)
        kind = "DECOUPLED" if name == "decoupled" else "PLAIN"
        parameter = f'parameters {{ key: "kind" value {{ string_value: "{kind}" }} }}\n'
        file = folder / "config.pbtxt"
        file.write_text(CONFIG + MODELS[name] + parameter + f"# {version}\n")
        os.utime(file, ns=(version, version))
        (folder / "1" / "model.py").write_text(SOURCE)

    async def play(self) -> None:
        for name in MODELS:
            self.write(name, 1)
            await self.manager.load_model(name)
        deadline = monotonic() + SECONDS
        while monotonic() < deadline:
            self.turn()
            await asyncio.sleep(self.random.choice((0, 0, 0.001, 0.005)))
        # A worker that is killed while it starts fails its reload, and the version before stays.
        failures = [f for f in await asyncio.gather(*self.reloads, return_exceptions=True) if f is not None]
        assert all(isinstance(f, ModelLoadError) and "SIGKILL" in str(f) for f in failures), failures
        await until(lambda: all(c.is_over for c in self.callers), LAST_S)
        await self.check()

    def turn(self) -> None:
        dice = self.random.random()
        if dice < 0.004:
            self.kill()
        elif dice < 0.008 and not self.reloads:
            self.reload()
        elif dice < 0.05:
            self.cancel()
        if sum(not c.is_over for c in self.callers[-400:]) < 200:
            name = self.random.choice(list(MODELS))
            for _ in range(self.random.choice((1, 1, 4, 16, 40))):
                self.submit(name)

    def submit(self, name: str) -> None:
        caller = self.caller("TYPE_STRING" in MODELS[name])
        try:
            model = self.engine.find(name, "")
            model.submit(caller)
        except (UnavailableError, ServerStoppingError):
            self.refused += 1
            return
        self.callers.append(caller)
        self.accepted[model] += 1

    def caller(self, has_texts: bool) -> Caller:
        pick = self.random
        (deed,) = pick.choices(list(DEEDS), list(DEEDS.values()))
        size = pick.choice(SIZES) if pick.random() < 0.2 else 3
        inputs = {"x": np.full((1, size), pick.randrange(1_000_000), np.float32)}
        if has_texts:
            inputs["s"] = np.empty((1, pick.choice((1, 1, 1, 1, 0, 3))), object)
            for at in range(inputs["s"].size):
                inputs["s"][0, at] = pick.choice((b"", b"a", b"\xff" * 100))
        id = f"{len(self.callers)}-{pick.randrange(10**6)}" + pick.choice(("", "", "", "ü", "\0"))
        return Caller(self.options_of(inputs, deed), deed, inputs, id)

    def options_of(self, inputs: Mapping[str, np.ndarray], deed: str) -> RequestOptions:
        """Those of other requests alike, or some that no other has."""
        shapes = tuple((name, array.shape[1:]) for name, array in inputs.items())
        found = self.options.get((shapes, deed))
        if found is None or self.random.random() < 0.02:
            outputs = ("y", "t") if "s" in inputs else ("y",)
            found = self.options[shapes, deed] = RequestOptions(outputs, 1, shapes, {"deed": deed})
        return found

    def cancel(self) -> None:
        for caller in self.random.sample(self.callers[-100:], min(5, len(self.callers[-100:]))):
            if not caller.is_over:
                caller.cancelled = True
                self.happened["cancel"] += 1
                for model in self.accepted:
                    model.cancel(caller)

    def kill(self) -> None:
        if found := children():
            self.happened["kill"] += 1
            with contextlib.suppress(psutil.Error):
                psutil.Process(self.random.choice(found)).kill()

    def reload(self) -> None:
        name = self.random.choice(list(MODELS))
        self.happened["reload"] += 1
        self.write(name, self.happened["reload"] + 1)
        task = asyncio.get_running_loop().create_task(self.manager.load_model(name))
        self.reloads.add(task)
        task.add_done_callback(self.reloads.discard)

    async def check(self) -> None:
        assert [(c.deed, c.problems) for c in self.callers if c.problems] == []
        for model, accepted in self.accepted.items():
            # A request is answered before the end of its batch is known.
            await until(lambda model=model: all_at_rest(model), 10)
            counted = model.statistics.success.count + model.statistics.failure.count
            assert counted == accepted, (model.name, counted, accepted)
        results = Counter((c.deed, c.result) for c in self.callers)
        answered = sum(n for (_, result), n in results.items() if result == "answer")
        assert answered > 0.2 * len(self.callers), results
        wrong = {key: n for key, n in results.items() if key[1] not in allowed(key[0])}
        assert not wrong, wrong


def allowed(deed: str) -> set[str]:
    """What may become of a request; a death or the failure of its batch may meet any."""
    names = {UnavailableError.__name__, BackendError.__name__, CancelledError.__name__}
    return names | ({"InternalError"} if deed in ("fail", "let go") else {"answer"})


def all_at_rest(model: LoadedModel) -> bool:
    if model.in_flight or model.statistics.pending or not all(i.is_idle for i in model.instances):
        return False
    return not kept_of(model, Caller)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_whatever_happens(tmp_path: Path, seed: int) -> None:
    gc.collect()
    segments = mapped_segments()
    stress = Stress(tmp_path, seed)

    async def main() -> None:
        files = len(open_files())
        try:
            await stress.play()
        finally:
            assert await stress.manager.unload_all(LAST_S)
        assert children() == []
        for model in stress.accepted:
            assert model.in_flight == model.statistics.pending == 0
        stress.callers.clear()
        stress.accepted.clear()

        def is_clean() -> bool:
            gc.collect()
            return len(open_files()) <= files + 1 and mapped_segments() <= segments

        # Threads give the memory back, and may be behind on a busy machine.
        with contextlib.suppress(TimeoutError):
            await until(is_clean)
        assert len(open_files()) <= files + 1
        assert mapped_segments() <= segments

    run(main())
