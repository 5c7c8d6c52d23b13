"""Where a large request message is received: it names its model at the beginning, before the tensors arrive."""

from __future__ import annotations

from naiad.engine.facade import InferenceEngine
from naiad.errors import NaiadError
from naiad.wire.v2.proto import named_model
from naiad.worker.ipc.arena import Arena


def find_arena(engine: InferenceEngine, beginning: memoryview) -> Arena | None:
    """The arena of the model of a request that begins like this; None for any memory."""
    name, version = named_model(beginning)
    if not name:
        return None
    try:
        return engine.find(name, version).arena
    except NaiadError:
        # The caller hears of it when the message is read.
        return None
