"""Keys of the response cache: equal for two requests that one response may serve.

The reference hashes the model, its version and the bytes of the inputs. These keys cover everything that a response may
depend on: also the shapes, the requested outputs, the parameters and the sequence.
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
"""Requests with larger inputs are not looked up: hashing them would block the event loop, and with it other requests.

An element of BYTES counts ``OBJECT_BYTES`` and its reference more than its text, as it does for the bytes in flight:
many short texts take long to hash as well.
"""
MOST_OUTPUT_BYTES: Final = 1 << 24
"""Responses with larger outputs are not cached: the event loop copies them. Counted in the same manner."""
_WHOLE_BYTES: Final = 1 << 10
_MOST_OPTIONS: Final = 1024


class RequestKeys:
    """Makes the keys of requests to one loaded model."""

    __slots__ = ("_inputs", "_known", "_model")

    def __init__(self, spec: ModelSpec, model: str) -> None:
        """``model`` identifies the loaded model among all that share the cache, also among models of the same name."""
        self._inputs = {name: tensor.dtype.is_bytes for name, tensor in spec.inputs.items()}
        self._model = model
        # By the options: the part of the key that equal requests share, and the sorted names of their inputs.
        self._known: dict[RequestOptions, tuple[bytes, list[str]]] = BoundedDict(_MOST_OPTIONS)

    def key(self, request: InferRequest) -> bytes | None:
        """The key of a request, None when its inputs are too large."""
        inputs = request.inputs
        # Requests with the same plan share their options, so the description is made once.
        described, names = self._known.get(request.options) or self._describe(request)
        # The usual key is made in one step: a hit of 16 floats takes 1.45 us of the event loop instead of 2.5.
        if len(names) == 1 and not self._inputs[names[0]] and inputs[names[0]].nbytes <= _WHOLE_BYTES:
            # The single input is the rest of the key, so its length is not needed.
            return described + inputs[names[0]].tobytes()
        # Before their bytes are read.
        if not self._are_small(names, inputs):
            return None
        parts: list[Raw] = [described]
        for name in names:
            data = self._data(name, inputs[name])
            # Each after its length: else the bytes of one input could count as those of the next.
            parts += (len(data).to_bytes(8, "little"), data)
        whole = b"".join(parts)
        return whole if len(whole) <= _WHOLE_BYTES else sha256(whole).digest()

    def _are_small(self, names: list[str], inputs: Mapping[str, Array]) -> bool:
        """Whether ``memory_of`` the inputs is small enough. Faster than ``memory_within`` for small inputs."""
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
        """The key without the data, and the sorted names. Requests with the same options have the same shapes."""
        options, names = request.options, sorted(request.inputs)
        shapes = [(name, request.inputs[name].shape) for name in names]
        parameters = sorted(options.parameters.items())
        sequence = options.correlation_id, options.flags
        # ``repr`` keeps 1, 1.0, True and "1" apart.
        text = repr((self._model, shapes, options.outputs, parameters, sequence)).encode()
        found = self._known[options] = text, names
        return found


def memory_within(tensors: Mapping[str, Array], most: int) -> int | None:
    """``memory_of`` tensors; None when it is more than ``most``. Takes no longer than for tensors of that size."""
    # A lower bound for BYTES that needs no look at their elements.
    least = sum(array.nbytes + OBJECT_BYTES * array.size * array.dtype.hasobject for array in tensors.values())
    if least > most:
        return None
    held = memory_of(tensors)
    return held if held <= most else None
