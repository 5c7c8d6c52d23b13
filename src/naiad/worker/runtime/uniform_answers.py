"""Responses of one batch that differ in their elements alone, which are then described once."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ..api.inference_request import InferenceRequest
from ..api.inference_response import InferenceResponse
from ..ipc.datatypes import BYTES, WorkerDataType
from ..ipc.frames import ALIGNMENT, FLAG_FINAL, SEGMENT_BYTES
from ..ipc.schemas import PADDING, Schema

Answer = Tuple[InferenceRequest, Optional[InferenceResponse], int]
"""A request, the response to it if there is one, and the flags."""
_Facts = Tuple[str, WorkerDataType, Tuple[int, ...], bytes]
"""Name, datatype and shape of a tensor, and the bytes that fill the room to the next."""


def alike(answers: list[Answer], form: Schema) -> list[Any] | None:
    """The data part of the answers to requests of that form, in pieces; None when the answers differ in their tensors,
    or are of other than the plain kind."""
    facts = _facts_of(answers, form)
    if facts is None:
        return None
    data: list[Any] = []
    for _, response, flags in answers:
        if response is None or flags != FLAG_FINAL or response._error is not None or response._parameters != "{}":
            return None
        if len(response._tensors) != len(facts):
            return None
        for tensor, (name, datatype, shape, gap) in zip(response._tensors, facts):
            array = tensor._array
            if array is None or tensor._shape != shape or tensor._type is not datatype or tensor._name != name:
                return None
            data.append(array)
            if gap:
                data.append(gap)
    return data


def _facts_of(answers: list[Answer], form: Schema) -> list[_Facts] | None:
    response = answers[0][1] if answers else None
    if response is None or not response._tensors:
        return None
    facts = []
    wanted = form.wanted
    for tensor in response._tensors:
        array = tensor._array
        if array is None or tensor._type is BYTES or array.nbytes >= SEGMENT_BYTES:
            return None
        if wanted is not None and tensor._name not in wanted:
            return None
        size = array.nbytes
        facts.append((tensor._name, tensor._type, tensor._shape, PADDING[-size % ALIGNMENT]))
    return facts
