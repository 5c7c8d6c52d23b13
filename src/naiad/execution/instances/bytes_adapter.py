"""The adapter for models with BYTES: large tensors travel serialised, and are arrays only for the model itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from naiad.backend_api.backend import Instance
from naiad.config.spec import ModelSpec
from naiad.request import Array
from naiad.tensor.packed_bytes import packed_if_large, with_unpacked


class BytesAdapter(Instance):
    """Runs ``instance`` with arrays. Tensors are unpacked and packed again in its own thread."""

    def __init__(self, instance: Instance, spec: ModelSpec) -> None:
        self._instance = instance
        self._places = {n: f"output '{n}' of model '{spec.name}'" for n, t in spec.outputs.items() if t.dtype.is_bytes}
        # Outputs that are not split row by row stay arrays.
        self._packs = spec.assembly is None

    def execute(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        results = self._instance.execute(with_unpacked(inputs), outputs)
        if not self._packs:
            return results
        places = self._places
        return {n: packed_if_large(a, places[n]) if n in places else a for n, a in results.items()}

    def close(self) -> None:
        self._instance.close()


def with_arrays(instance: Instance, spec: ModelSpec) -> Instance:
    """The instance itself, or an adapter where it needs BYTES as arrays."""
    has_strings = any(t.dtype.is_bytes for tensors in (spec.inputs, spec.outputs) for t in tensors.values())
    return BytesAdapter(instance, spec) if has_strings and not instance.takes_packed else instance
