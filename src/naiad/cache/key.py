"""What two requests must have in common for one answer to serve both.

The reference hashes the model, its version and the bytes of the inputs. Here everything that an answer may depend on
counts: also the shapes, the outputs that are asked for, the parameters and the sequence.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import numpy as np

from naiad.config.spec import ModelSpec
from naiad.request import Array, InferRequest, RequestTerms
from naiad.tensor.strings import encode_bytes

MOST_INPUT_BYTES: Final = 1 << 20
"""Requests with larger inputs are not looked up: to read them takes the event loop as long as many small requests."""
_WHOLE_BYTES: Final = 1 << 10
_MOST_TERMS: Final = 1024


class RequestKeys:
    """Makes the keys of the requests to one loaded model. Two that are equal belong to requests with equal answers."""

    __slots__ = ("_inputs", "_known", "_model")

    def __init__(self, spec: ModelSpec, model: str) -> None:
        """``model`` tells the loaded model from all others that share the cache, also from others of the same name."""
        self._inputs = {name: tensor.dtype.is_bytes for name, tensor in spec.inputs.items()}
        self._model = model
        # What requests with the same terms share: their description, and the names of their inputs.
        self._known: dict[RequestTerms, tuple[bytes, list[str]]] = {}

    def key(self, request: InferRequest) -> bytes | None:
        """The key of a request, None when it cannot have one: its inputs are too large."""
        inputs = request.inputs
        described, names = self._known.get(request.terms) or self._describe(request)
        if len(names) == 1:
            data = self._data(names[0], inputs[names[0]])
            if len(data) <= _WHOLE_BYTES:
                # The rest is the one input: nothing has to say where it ends.
                return described + data
        parts: list[bytes] = [described]
        size = 0
        for name in names:
            data = self._data(name, inputs[name])
            size += len(data)
            if size > MOST_INPUT_BYTES:
                return None
            # A length of 8 bytes says where each begins.
            parts += (len(data).to_bytes(8, "little"), data)
        whole = b"".join(parts)
        return whole if len(whole) <= _WHOLE_BYTES else sha256(whole).digest()

    def _data(self, name: str, array: Array) -> bytes:
        if self._inputs[name]:
            return bytes(encode_bytes(array))
        # What would be too large anyway is not copied.
        return array.tobytes() if array.nbytes <= MOST_INPUT_BYTES else bytes(MOST_INPUT_BYTES + 1)

    def _describe(self, request: InferRequest) -> tuple[bytes, list[str]]:
        """All but the data, and the inputs in order. Those of requests with the same terms have the same shapes."""
        terms, names = request.terms, sorted(request.inputs)
        shapes = [(name, request.inputs[name].shape) for name in names]
        parameters = sorted(terms.parameters.items())
        sequence = terms.correlation_id, terms.flags
        text = repr((self._model, shapes, terms.outputs, parameters, sequence)).encode()
        if len(self._known) >= _MOST_TERMS:
            self._known.clear()
        found = self._known[terms] = text, names
        return found


def size_of(array: Array) -> int:
    """Bytes that an output takes in a cache."""
    if array.dtype == np.object_:
        return sum(len(element) + _ELEMENT_BYTES for element in array.ravel())
    return array.nbytes


_ELEMENT_BYTES: Final = 48
"""What Python needs for an element of a BYTES tensor beside its bytes."""
