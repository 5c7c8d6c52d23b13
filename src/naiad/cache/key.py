"""What two requests must have in common for one answer to serve both.

The reference hashes the model, its version and the bytes of the inputs. Here everything that an answer may depend on
counts: also the shapes, the outputs that are asked for, the parameters and the sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from naiad.bounded_dict import BoundedDict
from naiad.config.spec import ModelSpec
from naiad.request import OBJECT_BYTES, Array, InferRequest, RequestOptions, memory_of
from naiad.tensor.bytes_codec import Raw
from naiad.tensor.packed_bytes import serialised

MOST_INPUT_BYTES: Final = 1 << 20
"""Requests with larger inputs are not looked up: to read them takes the event loop as long as many small requests.

An element of BYTES counts ``OBJECT_BYTES`` and its place more than its text, as it does for the bytes in flight: many
short texts take long to read as well.
"""
MOST_OUTPUT_BYTES: Final = 1 << 24
"""Answers with larger outputs are not kept: the event loop copies them. Counted likewise."""
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
        self._known: dict[RequestOptions, tuple[bytes, list[str]]] = BoundedDict(_MOST_TERMS)

    def key(self, request: InferRequest) -> bytes | None:
        """The key of a request, None when it cannot have one: its inputs are too large."""
        inputs = request.inputs
        described, names = self._known.get(request.options) or self._describe(request)
        if len(names) == 1 and not self._inputs[names[0]] and inputs[names[0]].nbytes <= _WHOLE_BYTES:
            # The rest is the one input: nothing has to say where it ends.
            return described + inputs[names[0]].tobytes()
        # Before anything is read of them.
        if not self._are_small(names, inputs):
            return None
        parts: list[Raw] = [described]
        for name in names:
            data = self._data(name, inputs[name])
            # A length of 8 bytes says where each begins.
            parts += (len(data).to_bytes(8, "little"), data)
        whole = b"".join(parts)
        return whole if len(whole) <= _WHOLE_BYTES else sha256(whole).digest()

    def _are_small(self, names: list[str], inputs: Mapping[str, Array]) -> bool:
        """``memory_within`` for the inputs of a request, in a fraction of its time for small ones."""
        size, texts = 0, 0
        for name in names:
            array = inputs[name]
            size += array.nbytes
            if self._inputs[name]:
                texts += 1
                size += OBJECT_BYTES * array.size
        if not texts or size > MOST_INPUT_BYTES:
            return size <= MOST_INPUT_BYTES
        return memory_of(inputs) <= MOST_INPUT_BYTES

    def _data(self, name: str, array: Array) -> Raw:
        return serialised(array) if self._inputs[name] else array.tobytes()

    def _describe(self, request: InferRequest) -> tuple[bytes, list[str]]:
        """All but the data, and the inputs in order. Those of requests with the same terms have the same shapes."""
        options, names = request.options, sorted(request.inputs)
        shapes = [(name, request.inputs[name].shape) for name in names]
        parameters = sorted(options.parameters.items())
        sequence = options.correlation_id, options.flags
        text = repr((self._model, shapes, options.outputs, parameters, sequence)).encode()
        found = self._known[options] = text, names
        return found


def memory_within(tensors: Mapping[str, Array], most: int) -> int | None:
    """What tensors hold, as ``memory_of`` counts; None for more than ``most``, which is found out in no more time than
    tensors of that size take.
    """
    # What BYTES hold at least is known without a look at their elements.
    least = sum(array.nbytes + OBJECT_BYTES * array.size * array.dtype.hasobject for array in tensors.values())
    if least > most:
        return None
    held = memory_of(tensors)
    return held if held <= most else None
