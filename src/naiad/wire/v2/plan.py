"""Plans: all that is known about requests with one head, noted once and used for every request alike.

Clients repeat themselves: a caller sends the same description with other tensors behind it. What was read and checked
once is kept as an ``InferPlan`` under the exact bytes of the description, the request id left out, and serves until the
model goes.
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
_Kept = TypeVar("_Kept")


class BinaryInput(NamedTuple):
    """Where one input lies behind the description: at ``offset`` bytes."""

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
    """

    dtypes: Mapping[str, DataType]
    binary: Mapping[str, bool]
    classes: Classes | None = None


class InferPlan(RequestOptions, Generic[_Head]):
    """All that is known about requests with one description; each protocol adds how they are answered, with heads of
    its own kind that are kept by the shapes of the outputs.

    Attributes:
        inputs: the binary inputs; ``data_bytes`` is their bytes together, and ``size`` the same for requests that take
            the fast way, -1 for those with regions.
        dtypes, binary: of each requested output, its datatype and whether it is wanted as binary data.
        empty_final: the end of the answers is to be told even when no response comes with it (streams of gRPC).
        classes: which outputs are classified; None for none.
        is_special: some inputs may have to be read, or looked at, before the request can go to its model.
        placed: outputs that are wanted in regions.
        plain: every output is binary and of a type whose memory is its wire form: answers take the fast way.
    """

    __slots__ = (
        "_first",
        "_heads",
        "_of_versions",
        "_single",
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
        for name in RequestOptions.__slots__:
            setattr(self, name, getattr(options, name))
        outputs, regions = options.outputs, options.regions
        dtypes, binary = formats.dtypes, formats.binary
        self.empty_final = empty_final
        self.classes = formats.classes
        self.model = model
        self.version = version
        self.inputs = tuple(inputs)
        self.data_bytes = size
        self.size = size if regions is None else -1
        self.dtypes = dtypes
        self.binary = binary
        self.is_special = regions is not None
        self.placed: frozenset[str] = frozenset(name for name, _ in regions.outputs) if regions else frozenset()
        self.plain = (
            formats.classes is None
            and not self.placed
            and all(binary[n] and not dtypes[n].is_bytes and dtypes[n].wire != "BF16" for n in outputs)
        )
        self._single = outputs[0] if self.plain and len(outputs) == 1 else None
        self._first = self.inputs[0] if len(self.inputs) == 1 else None
        self._heads: dict[object, _Head] = BoundedDict(MAX_HEADS)
        self._of_versions: dict[int, Self] | None = None

    def of_version(self, version: int) -> Self:
        """The same plan for another version of the model, which takes and gives the same; kept."""
        if version == self.version:
            return self
        if self._of_versions is None:
            self._of_versions = {}
        found = self._of_versions.get(version)
        if found is None:
            found = self._of_versions[version] = copy(self)
            found.version = version
            # The copies are all kept here, and lead nowhere.
            found._begin_answers()
            found._of_versions = None
        return found

    def _begin_answers(self) -> None:
        """Keep answers of its own: they say the version."""
        self._heads = BoundedDict(MAX_HEADS)

    def with_parameters(self, parameters: Parameters) -> Self:
        """The same plan for a request that has these parameters beside its own; heads of answers are shared."""
        found = self._copied()
        found.parameters = {**self.parameters, **parameters}
        return found

    def in_sequence(self, correlation_id: int | str) -> Self:
        """The same plan for a request of another sequence; heads of answers are shared."""
        found = self._copied()
        found.correlation_id = correlation_id
        return found

    def _copied(self) -> Self:
        # copy.copy() takes several times as long.
        found = object.__new__(type(self))
        for name in type(self)._all_slots:
            setattr(found, name, getattr(self, name))
        # Those have the parameters and the sequence of this one.
        found._of_versions = None
        return found

    def views(self, body: bytes | bytearray | memoryview, start: int) -> dict[str, Array]:
        """The inputs as views into ``body``, whose description ends at ``start``."""
        if self._first is not None:
            name, dtype, offset, shape = self._first
            return {name: _ndarray(shape, dtype, body, start + offset)}
        return {name: _ndarray(shape, dtype, body, start + offset) for name, dtype, offset, shape in self.inputs}

    def gather(self, outputs: Mapping[str, Array]) -> tuple[object, list[Array]]:
        """What the head of a ``plain`` answer depends on (the shapes), and the requested outputs in order.

        Raises:
            KeyError: an output is missing.
        """
        if self._single is not None:
            array = outputs[self._single]
            return array.shape, [array]
        arrays = [outputs[name] for name in self.outputs]
        return tuple([array.shape for array in arrays]), arrays

    def keep_head(self, key: object, head: _Head) -> _Head:
        """Keep the head of answers whose ``gather`` gave ``key``; there are few at a time."""
        self._heads[key] = head
        return head


def _slots_of(kind: type[object]) -> tuple[str, ...]:
    """All attributes of a plan, also those that a protocol adds."""
    return tuple(name for base in kind.__mro__ for name in getattr(base, "__slots__", ()))


class PlanMemo(Generic[_Kept]):
    """Plans by the exact bytes of a description without its id; bounded in number and in key length."""

    __slots__ = ("_plans", "get")

    def __init__(self) -> None:
        self._plans: dict[bytes, _Kept] = BoundedDict(MAX_PLANS)
        self.get = self._plans.get

    def keep(self, key: bytes, plan: _Kept) -> None:
        """Keep a plan, unless its key is long; all others are forgotten when there are too many."""
        if len(key) > MAX_PLAN_KEY:
            return
        self._plans[key] = plan

    def forget(self, unwanted: Callable[[_Kept], bool]) -> None:
        """Forget those plans that ``unwanted`` says."""
        for key in [key for key, plan in self._plans.items() if unwanted(plan)]:
            del self._plans[key]

    def __len__(self) -> int:
        return len(self._plans)
