"""Plans: the checked description of a request, compiled once and used for every request that repeats it.

Clients repeat themselves: a caller sends the same description with other tensors after it. Once parsed and checked, a
description is cached as an ``InferPlan`` by its exact bytes without the request id, until the model is unloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np

from naiad.bounded_dict import BoundedDict
from naiad.request import Array, Parameters, RequestOptions
from naiad.tensor.dtypes import DataType
from naiad.wire.v2.classification import Classes

MAX_PLANS = 1024
MAX_PLAN_KEY = 4096
MAX_HEADS = 64
_ndarray = np.ndarray
_Head = TypeVar("_Head")
_Cached = TypeVar("_Cached")


class BinaryInput(NamedTuple):
    """The place of one input: ``offset`` bytes after the description."""

    name: str
    dtype: np.dtype[np.generic]
    offset: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OutputFormats:
    """The formats of the requested outputs, by name.

    Attributes:
        dtypes: the configured datatype of each output.
        binary: whether the caller wants an output as binary data.
        classes: the outputs that are classified; None without any.
        base64: the outputs that the caller wants as base64 text in JSON.
    """

    dtypes: Mapping[str, DataType]
    binary: Mapping[str, bool]
    classes: Classes | None = None
    base64: frozenset[str] = frozenset()


class InferPlan(RequestOptions, Generic[_Head]):
    """A compiled description: the options of its requests, the layout of their inputs and the formats of their outputs.
    Each protocol adds the encoding of responses, whose heads are cached by the shapes of the outputs.

    Attributes:
        inputs: the binary inputs; ``data_bytes`` is the sum of their bytes, and ``size`` the same for requests that
            take the fast path, -1 for requests with shared memory.
        dtypes, binary: by requested output, its datatype and whether the caller wants it as binary data.
        base64: the requested outputs that are sent as base64 text.
        empty_final: the caller wants an empty final response when the final flag comes without a response (streams of
            gRPC).
        classes: the outputs that are classified; None without any.
        is_special: some inputs may have to be decoded, or looked up, before the request can be submitted to its model.
        placed: the outputs that are written to shared memory.
        plain: every output is binary, and its datatype is sent as it is in memory: responses take the fast path.
    """

    __slots__ = (
        "_first",
        "_heads",
        "_of_versions",
        "_single",
        "base64",
        "binary",
        "classes",
        "data_bytes",
        "dtypes",
        "empty_final",
        "inputs",
        "is_special",
        "model",
        "placed",
        "plain",
        "size",
        "version",
    )

    _all_slots: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # Once for each class, because every request of a sequence copies its plan.
        cls._all_slots = _slots_of(cls)

    def __init__(
        self,
        model: str,
        version: int,
        options: RequestOptions,
        formats: OutputFormats,
        inputs: Sequence[BinaryInput] = (),
        size: int = 0,
        empty_final: bool = False,
    ) -> None:
        # A plan is the options of its requests, so that a request needs no other object; they are copied in here.
        self.take_over(options)
        outputs, regions = options.outputs, options.regions
        dtypes, binary = formats.dtypes, formats.binary
        self.empty_final = empty_final
        self.classes = formats.classes
        self.model = model
        self.version = version
        self.inputs = tuple(inputs)
        self.data_bytes = size
        # -1 is the size of no request, so requests with regions leave the fast path.
        self.size = size if regions is None else -1
        self.dtypes = dtypes
        self.binary = binary
        self.base64 = formats.base64
        self.is_special = regions is not None
        self.placed: frozenset[str] = frozenset(name for name, _ in regions.outputs) if regions else frozenset()
        self.plain = (
            formats.classes is None
            and not self.placed
            and all(binary[n] and not dtypes[n].is_bytes and dtypes[n].wire != "BF16" for n in outputs)
        )
        # Plans with one output or one input have shorter paths.
        self._single = outputs[0] if self.plain and len(outputs) == 1 else None
        self._first = self.inputs[0] if len(self.inputs) == 1 else None
        self._heads: dict[object, _Head] = BoundedDict(MAX_HEADS)
        self._of_versions: dict[int, Self] | None = None

    def of_version(self, version: int) -> Self:
        """The same plan for another version of the model with the same inputs and outputs; cached."""
        if version == self.version:
            return self
        if self._of_versions is None:
            self._of_versions = {}
        found = self._of_versions.get(version)
        if found is None:
            found = self._of_versions[version] = copy(self)
            found.version = version
            # All copies are cached in the first plan; a copy has none, which would be a reference cycle.
            found._begin_heads()
            found._of_versions = None
        return found

    def _begin_heads(self) -> None:
        """Begin an own cache of heads, which contain the version."""
        self._heads = BoundedDict(MAX_HEADS)

    def with_parameters(self, parameters: Parameters) -> Self:
        """The same plan for a request with these parameters in addition; heads of responses are shared."""
        found = self._copied()
        found.parameters = {**self.parameters, **parameters}
        return found

    def in_sequence(self, correlation_id: int | str) -> Self:
        """The same plan for a request of another sequence; heads of responses are shared."""
        found = self._copied()
        found.correlation_id = correlation_id
        return found

    def _copied(self) -> Self:
        # copy.copy() takes several times as long.
        found = object.__new__(type(self))
        for name in type(self)._all_slots:
            setattr(found, name, getattr(self, name))
        # The cached plans of versions have the parameters and the sequence of this one.
        found._of_versions = None
        return found

    def views(self, body: bytes | bytearray | memoryview, start: int) -> dict[str, Array]:
        """The inputs as views into ``body``, whose description ends at ``start``."""
        # The constructor takes offset and shape in one call; ``frombuffer`` would need a ``reshape``.
        if self._first is not None:
            name, dtype, offset, shape = self._first
            return {name: _ndarray(shape, dtype, body, start + offset)}
        return {name: _ndarray(shape, dtype, body, start + offset) for name, dtype, offset, shape in self.inputs}

    def gather(self, outputs: Mapping[str, Array]) -> tuple[object, list[Array]]:
        """The cache key for the head of a ``plain`` response (the shapes), and the requested outputs in order.

        Raises:
            KeyError: an output is missing.
        """
        if self._single is not None:
            array = outputs[self._single]
            return array.shape, [array]
        arrays = [outputs[name] for name in self.outputs]
        return tuple([array.shape for array in arrays]), arrays

    def cache_head(self, key: object, head: _Head) -> _Head:
        """Cache the head of responses for which ``gather`` returned ``key``."""
        self._heads[key] = head
        return head


def _slots_of(kind: type[object]) -> tuple[str, ...]:
    """The names of all attributes of a plan, with the attributes of the protocol's subclass."""
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))


class PlanMemo(Generic[_Cached]):
    """A cache of plans by the exact bytes of a description without its id; bounded in number and in key length."""

    __slots__ = ("_plans", "get")

    def __init__(self) -> None:
        self._plans: dict[bytes, _Cached] = BoundedDict(MAX_PLANS)
        # Bound once: every request calls it.
        self.get = self._plans.get

    def keep(self, key: bytes, plan: _Cached) -> None:
        """Cache a plan, unless its key is long. A full cache is emptied first."""
        if len(key) > MAX_PLAN_KEY:
            return
        self._plans[key] = plan

    def forget(self, unwanted: Callable[[_Cached], bool]) -> None:
        """Drop the plans for which ``unwanted`` is true."""
        for key in [key for key, plan in self._plans.items() if unwanted(plan)]:
            del self._plans[key]

    def __len__(self) -> int:
        return len(self._plans)
