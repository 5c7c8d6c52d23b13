"""The traces of answers that wait for earlier ones (``preserve_ordering``): they say when the answers left."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any, ClassVar

import pytest

from naiad.backend_api.backend import Arrays
from naiad.config.spec import BatchingSpec
from naiad.errors import BackendError, NaiadError
from naiad.telemetry.tracing.settings import TraceSettings
from naiad.telemetry.tracing.settings_store import Sampler
from naiad.telemetry.tracing.trace import Trace, TraceOutput
from support.event_loops import WAIT_S, run, until
from support.loaded_models import Caller, loaded, negate, spec


class Traced(Caller):
    """A caller over HTTP."""

    __slots__ = ()
    carrier: ClassVar[str] = "HTTP"


class Sink:
    """Keeps traces."""

    mode = "triton"
    takes_tensors = True
    takes_parents = False

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def problem(self) -> str:
        return ""

    def shown(self) -> dict[str, str]:
        return {}

    def put(self, output: TraceOutput, trace: Trace | None) -> None:
        if trace is not None:
            self.traces.append(trace)

    def close(self, timeout_s: float) -> None:
        pass


@pytest.mark.parametrize("fails", [False, True])
def test_a_trace_ends_when_its_answer_leaves(fails: bool) -> None:
    opened = threading.Event()
    begun: list[float] = []
    sink = Sink()
    settings = TraceSettings(("TIMESTAMPS", "TENSORS"), 1)

    def execute(inputs: Arrays, outputs: Any) -> Arrays:
        begun.append(float(inputs["x"][0, 0]))
        if begun[-1] == 1:
            assert opened.wait(WAIT_S)
        elif fails:
            raise BackendError("as it was told")
        return negate(inputs, ("y",))

    async def test() -> None:
        ordered = BatchingSpec((1,), 0, preserve_ordering=True)
        with loaded(spec(batching=ordered, count=2, max_batch_size=1), execute) as model:
            model.trace_with(Sampler(settings, sink, count(1), lambda: None))
            slow, quick = Traced(1), Traced(2)
            slow.id, quick.id = "slow", "quick"
            try:
                model.submit(slow)
                await until(lambda: begun == [1])
                model.submit(quick)
                await until(lambda: model.in_flight == 1)
                assert not quick.answers
                assert sink.traces == []
            finally:
                opened.set()
            assert await slow.answer() == [-1]
            if fails:
                with pytest.raises(NaiadError, match="as it was told"):
                    await quick.answer()
            else:
                assert await quick.answer() == [-2]
            await until(lambda: len(sink.traces) == 2)

    run(test())
    found = {t.request_id: t for t in sink.traces}
    first, second = (dict(found[name].timestamps) for name in ("slow", "quick"))
    assert second["REQUEST_START"] < first["REQUEST_END"] <= second["REQUEST_END"]
    names = {name: [tensor.name for tensor in t.tensors] for name, t in found.items()}
    assert names == {"slow": ["x", "y"], "quick": ["x"] if fails else ["x", "y"]}
