"""Slow requests that are made on purpose, by ten causes, and what the server says of each.

Run ``.venv/bin/python scripts/benchmarks/slow_causes.py`` on a machine that has nothing else to do: where other
processes have the processors, that is the cause.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import naiad
from naiad.binding.function import THREAD, bind_function
from naiad.binding.model_folder import CALLABLE
from naiad.engine.engine import Engine
from naiad.errors import NaiadError
from naiad.inprocess.bound_model import FunctionModel, backend_of_bound
from naiad.options import parse
from naiad.repository.local.overrides import Overrides
from naiad.request import Array, InferRequest, RequestOptions
from naiad.server.build import build
from naiad.telemetry.logs.server_log import LogSettings, ServerLog
from naiad.testing import write_model

ROUNDS = 4
WAITS = 0.08


class Asked(InferRequest):
    """A request that has a future."""

    def __init__(self, inputs: Mapping[str, Array], id: str) -> None:
        options = RequestOptions(("output",), 1, tuple(inputs))
        super().__init__(options, inputs, id, time.monotonic_ns())
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def respond(self, outputs: Mapping[str, Array], error: NaiadError | None) -> None:
        assert error is None
        self.done.set_result(None)

    def respond_part(self, outputs: Mapping[str, Array] | None, error: NaiadError | None, final: bool) -> None:
        if final:
            self.done.set_result(None)


def hold_interpreter(count: int = 8_000_000) -> int:
    # One call into C, which never gives the interpreter up.
    return sum(range(count))


def work(x: np.ndarray) -> np.ndarray:
    """Sleep for so many seconds; touch fresh memory for a negative number."""
    if x[0] < 0:
        # Larger than what the allocator keeps, so that its pages are new; one store for each, as filling them takes
        # as long as the faults.
        np.empty(16_000_000)[::512] = 1
    else:
        time.sleep(float(x[0]))
    return x


def several(x: np.ndarray) -> Iterator[np.ndarray]:
    for _ in range(100):
        yield x


class Heavy:
    """A model whose load holds the interpreter."""

    def setup(self, context: Any) -> None:
        time.sleep(0.03)
        hold_interpreter()

    def predict(self, x: np.ndarray) -> np.ndarray:
        return x


DELAYED = """
backend: "identity"
max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 80000 }
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "output" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""


@asynccontextmanager
async def engine_of(folder: Path) -> AsyncIterator[tuple[Engine, Callable[[str], Awaitable[object]]]]:
    bound = {
        name: FunctionModel(bind_function(name, function, {"x": naiad.FP32[-1]}, {"output": naiad.FP32[-1]}, 1, THREAD))
        for name, function in (("work", work), ("several", several), ("heavy", Heavy))
    }
    for one in bound.values():
        one.write_folder(folder)
    write_model(folder, "delayed", DELAYED)
    options = parse(["--model-repository", str(folder), "--model-control-mode=explicit", "--slow-requests=1000"], {})
    parts = build(options, ServerLog(LogSettings()), {CALLABLE: backend_of_bound(bound)})

    async def load(name: str) -> None:
        await parts.manager.load_model(name, Overrides())

    async def unload(name: str) -> None:
        await parts.manager.unload_model(name, False)

    async def reload(name: str) -> None:
        await unload(name)
        await load(name)

    await parts.manager.load_all(())
    for name in ("work", "several", "delayed", "heavy"):
        await load(name)
    try:
        yield parts.engine, reload
    finally:
        await parts.manager.unload_all(10)
        parts.close()


class Scenarios:
    """Each makes slow requests whose ids begin with the cause."""

    def __init__(self, engine: Engine, reload: Callable[[str], Awaitable[object]]) -> None:
        self._engine = engine
        self._reload = reload

    def send(self, cause: str, seconds: float, model: str = "work") -> Asked:
        shape = (1, 1) if model == "delayed" else (1,)
        request = Asked({"x": np.full(shape, seconds, np.float32)}, cause)
        request.queued_ns = time.monotonic_ns()
        self._engine.find(model, "").submit(request)
        return request

    async def model(self) -> None:
        await self.send("model", WAITS).done

    async def queue(self) -> None:
        many = [self.send("queue" if n > 8 else "", 0.008) for n in range(14)]
        await asyncio.gather(*(one.done for one in many))

    async def instance_busy(self) -> None:
        first = self.send("model", WAITS)
        await asyncio.sleep(0.01)
        await self.send("instance_busy", 0.001).done
        await first.done

    async def waiting_for_batch(self) -> None:
        await self.send("waiting_for_batch", 1, "delayed").done

    async def loop_late(self) -> None:
        request = self.send("loop_late", 0.01)
        # The model begins; a timer could come when it has ended, where the machine is busy.
        await asyncio.sleep(0)
        time.sleep(WAITS)
        await request.done

    async def interpreter_held(self) -> None:
        thread = threading.Thread(target=hold_interpreter)
        request = self.send("interpreter_held", 0.002)
        thread.start()
        await request.done
        thread.join()

    async def collection(self) -> None:
        garbage = [[[n] for n in range(10)] for _ in range(200_000)]
        request = self.send("collection", 0.004)
        await asyncio.sleep(0)
        gc.collect()
        await request.done
        del garbage

    async def page_faults(self) -> None:
        await self.send("page_faults", -1).done

    async def load(self) -> None:
        loading = asyncio.ensure_future(self._reload("heavy"))
        await asyncio.sleep(0.02)
        while not loading.done():
            await self.send("load", 0.002).done
        await loading

    async def client_not_reading(self) -> None:
        request = Asked({"x": np.zeros(1, np.float32)}, "client_not_reading")
        request.queued_ns = time.monotonic_ns()
        model = self._engine.find("several", "")
        model.submit(request)
        model.pause(request, 10_000)
        await asyncio.sleep(WAITS)
        model.resume(request)
        await request.done


async def play(folder: Path) -> list[dict[str, Any]]:
    """The slow requests that were made on purpose."""
    async with engine_of(folder) as (engine, reload):
        scenarios = Scenarios(engine, reload)
        for _ in range(ROUNDS):
            for name in CAUSES:
                # What one has left behind is not to be blamed on the next.
                await asyncio.sleep(0.1)
                await getattr(scenarios, name)()
        await asyncio.sleep(0.1)
        found: list[dict[str, Any]] = engine.slow_requests("")["slow_requests"]
        return [one for one in found if one["id"]]


CAUSES = [name for name in vars(Scenarios) if name[0] != "_" and name != "send"]


def main() -> int:
    with TemporaryDirectory() as folder:
        found = asyncio.run(play(Path(folder)))
    named = Counter((one["id"], one["cause"]) for one in found)
    for (made, cause), count in sorted(named.items()):
        print(f"{made:20} {cause:20} {count:4} {'' if made == cause else 'wrong'}")
    right = sum(count for (made, cause), count in named.items() if made == cause)
    print(f"{right} of {len(found)} named right: {right / max(1, len(found)):.1%} (bound: 95%)")
    return int(right < 0.95 * len(found))


if __name__ == "__main__":
    sys.exit(main())
