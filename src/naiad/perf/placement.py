"""Tensors of requests in shared memory, as ``--shared-memory`` asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from naiad.perf.input.region_layout import lay_out
from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription, StepStream
from naiad.perf.target.protocol import PerfTarget, TargetError
from naiad.perf.target.shared_memory import region_name, registered

_TOO_SMALL: Final = "shared memory size specified with the request"
"""How servers say that an output does not fit its place."""


@contextmanager
def in_regions(
    settings: InputSettings, target: PerfTarget, model: ModelDescription, streams: Sequence[StepStream]
) -> Iterator[Sequence[StepStream]]:
    """The steps to send, whose tensors lie in registered regions while the block runs, if that is asked for.

    Raises:
        PerfInputError: the steps do not go with shared memory.
        TargetError: there is no such memory, or the server does not take it.
    """
    if settings.shared_memory == "none":
        yield streams
        return
    layout = lay_out(settings, model, streams, region_name())
    with registered(settings.shared_memory, layout, target.place_tensors(layout.outputs)):
        try:
            yield layout.streams
        except TargetError as error:
            if _TOO_SMALL not in str(error):
                raise
            raise TargetError(f"{error}: make --output-shared-memory-size larger") from error
