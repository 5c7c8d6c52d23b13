"""Copies of bound functions that have one result for each call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from naiad.backend_api.backend import Arrays, Instance
from naiad.binding.call import FunctionCall


class FunctionInstance(Instance):
    """A plain function, in the instance's own thread."""

    def __init__(self, call: FunctionCall) -> None:
        self._call = call

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """Call the function once."""
        return self._call.plain(inputs)

    def close(self) -> None:
        """Tear the function down."""
        self._call.close()


class BatchedCoroutineInstance(Instance):
    """A coroutine that takes batches: one batch at a time, on a loop of the instance's own thread."""

    def __init__(self, call: FunctionCall) -> None:
        self._call = call
        self._loop = asyncio.new_event_loop()

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """Run the coroutine to its end."""
        return self._loop.run_until_complete(self._call.coroutine(inputs))

    def close(self) -> None:
        """Tear the function down."""
        try:
            self._call.close()
        finally:
            self._loop.close()
