"""From the options and the model's description to the requests."""

from __future__ import annotations

from dataclasses import replace

from naiad.perf.input.batches import batched
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.generated import generated_step
from naiad.perf.input.given import given_rows
from naiad.perf.input.shapes import checked_shapes
from naiad.perf.settings import InputSettings
from naiad.perf.steps import ModelDescription, Step, StepStream


def build_streams(settings: InputSettings, model: ModelDescription, *, streams: int = 1) -> list[StepStream]:
    """The requests to send.

    Made-up data have one step, which is repeated. Data of files have the steps of the files, around and around.

    Args:
        streams: how many streams of made-up data; files have their own number.

    Returns:
        For a sequence model, streams whose steps are those of a sequence. For other models, streams whose steps take
        turns.

    Raises:
        PerfInputError: the data do not fit the model, or cannot be read.
    """
    _check_batch_size(settings, model)
    settings = replace(settings, shapes=dict(checked_shapes(settings.shapes, model)))
    rows = _rows(settings, model, streams)
    return [batched(stream, settings.batch_size, model, index) for index, stream in enumerate(rows)]


def _rows(settings: InputSettings, model: ModelDescription, streams: int) -> list[list[Step]]:
    """The streams of steps of one row."""
    if not settings.paths:
        return [[generated_step(settings, model, index)] for index in range(streams)]
    found = given_rows(settings.paths, model, settings.shapes)
    if model.is_sequence or any(step.session_id for step in found[0]):
        return found
    # Requests that do not belong together take turns, all of them.
    return [[step for stream in found for step in stream]]


def _check_batch_size(settings: InputSettings, model: ModelDescription) -> None:
    size, most = settings.batch_size, model.max_batch_size
    if most == 0 and size > 1:
        raise PerfInputError(
            f"can not specify batch size > 1 as the model does not support batching: found -b {size} for model "
            f"'{model.name}', whose max_batch_size is 0"
        )
    if model.is_sequence and size > 1:
        raise PerfInputError(
            f"can not specify batch size > 1 when using a sequence model: found -b {size} for model '{model.name}'"
        )
    if size < 1 or (most and size > most):
        raise PerfInputError(f"found -b {size} for model '{model.name}', expected 1 to its max_batch_size of {most}")
