"""Classification: the best classes of an output as text instead of its numbers.

Source: the protocol's classification extension. An element is ``value:index`` or ``value:index:label``, best first;
values that are no integers have six decimals. The shape is the number of classes, after the batch if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from naiad.errors import InvalidArgumentError
from naiad.request import Array, Outputs
from naiad.tensor.dtypes import BYTES, DataType
from naiad.tensor.packed_bytes import packed_if_large
from naiad.wire.v2.parameters import parameters_of
from naiad.wire.v2.response import datatype_of

MAX_TEXTS: Final = 1 << 20
"""The most class texts in one response."""

# Work in units of one text: this many elements compared take as long, and a row takes as long as this many texts.
_ELEMENTS_PER_TEXT: Final = 32
_TEXTS_PER_ROW: Final = 16
_HALF_BYTES: Final = 2
_CHUNK_BYTES: Final = 1 << 20


class UnclassifiableError(InvalidArgumentError):
    """Classes are requested of an output that has no numbers."""


class LargeClassesError(InvalidArgumentError):
    """Classifying these outputs would block the event loop for too long: call ``classify`` in a thread.

    ``held_bytes`` is the memory of the outputs in bytes.
    """

    def __init__(self, classify: Callable[[], Classified], held_bytes: int) -> None:
        super().__init__(
            "the outputs are too large to be classified in a response of a decoupled model: ask for fewer classes, or "
            "for the tensor itself"
        )
        self.classify = classify
        self.held_bytes = held_bytes


class Classified(Outputs):
    """Outputs that are classified already."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Classes:
    """The classification that requests with one description ask for.

    Attributes:
        counts: the number of classes to return, for each output to classify.
        labels: the names of the classes, by output; possibly fewer than classes, or none.
        batches: the first dimension is the batch.
        at_once: the most class texts, or equal work, that the event loop may do.
    """

    counts: Mapping[str, int]
    labels: Mapping[str, Sequence[bytes]]
    batches: bool
    at_once: int

    def apply(self, outputs: Mapping[str, Array], at_once: bool = True) -> Classified:
        """``outputs`` with classes in the place of numbers, where they are wanted.

        Raises:
            LargeClassesError: ``at_once`` is true, and that would take long.
            InvalidArgumentError: an output cannot be classified, or there are too many classes.
        """
        wanted = {name: self._rows(outputs[name]) for name in self.counts if name in outputs}
        # The error carries the rest of the work: whoever catches it runs it in a thread.
        if self._work(wanted) > self.at_once and at_once:
            raise LargeClassesError(
                partial(self.apply, outputs, at_once=False), sum(a.nbytes for a in outputs.values())
            )
        found = Classified(outputs, parameters_of(outputs))
        for name, rows in wanted.items():
            texts = [_best(row, self.counts[name], self.labels[name]) for row in rows]
            strings = _strings(texts, rows, self.counts[name], self.batches)
            # Many texts are encoded here, in the thread, and not on the loop that sends the response.
            found[name] = strings if at_once else packed_if_large(strings, f"output '{name}'")
        return found

    def _rows(self, array: Array) -> Array:
        """The values to choose from: a row for each element of the batch, one when there is no batch."""
        check_classifiable(datatype_of(array, BYTES))
        rows = array.shape[0] if self.batches and array.ndim else 1
        return array.reshape(rows, array.size // rows if rows else 0)

    def _work(self, wanted: Mapping[str, Array]) -> int:
        """How many texts could be written in the time that it takes."""
        texts = sum(len(rows) * min(self.counts[name], rows.shape[1]) for name, rows in wanted.items())
        if texts > MAX_TEXTS:
            raise InvalidArgumentError(
                f"the classification asks for {texts} classes in one answer, expected at most {MAX_TEXTS}: ask for "
                "fewer, or for the tensor itself"
            )
        looks = sum(rows.size // _ELEMENTS_PER_TEXT + len(rows) * _TEXTS_PER_ROW for rows in wanted.values())
        return int(texts + looks)


def check_classifiable(dtype: DataType) -> None:
    """Whether outputs of this datatype can be classified: all numbers can.

    Raises:
        UnclassifiableError: it holds no numbers.
    """
    if dtype.is_bytes or dtype.wire == "BOOL":
        raise UnclassifiableError(f"class result not available for output due to unsupported type '{dtype.wire}'")


def _best(row: Array, count: int, labels: Sequence[bytes]) -> list[bytes]:
    """The texts of the ``count`` greatest values; of equal ones the first comes first, and NaN comes last."""
    numbers = row if row.dtype.kind in "iu" or row.dtype.itemsize > _HALF_BYTES else row.astype(np.float32)
    form = b"%d:%d" if numbers.dtype.kind in "iu" else b"%f:%d"
    indices = _greatest(_comparable(numbers), min(count, row.size))
    values: list[Any] = numbers[indices].tolist()
    texts = [form % (value, index) for value, index in zip(values, indices.tolist(), strict=True)]
    if not labels:
        return texts
    return [_labelled(text, index, labels) for text, index in zip(texts, indices.tolist(), strict=True)]


def _labelled(text: bytes, index: int, labels: Sequence[bytes]) -> bytes:
    label = labels[index] if index < len(labels) else b""
    return text + b":" + label if label else text


def _comparable(numbers: Array) -> Array:
    return numbers if numbers.dtype.kind in "iu" else np.where(np.isnan(numbers), -np.inf, numbers)


def _greatest(values: Array, count: int) -> Array:
    """The indices of the ``count`` greatest values, greatest first."""
    if not count:
        return np.empty(0, np.intp)
    candidates = np.arange(values.size) if count == values.size else _candidates(values, count)
    # Turned round twice, so that the first of equal values stays the first.
    order = np.argsort(values[candidates][::-1], kind="stable")[::-1]
    return candidates[candidates.size - 1 - order]


def _candidates(values: Array, count: int) -> Array:
    """The indices of the ``count`` greatest values in their own order; of the least ones the first."""
    # Linear in the number of values, as sorting all of them is not.
    least = np.partition(values, values.size - count)[values.size - count]
    found = [np.flatnonzero(values > least)]
    missing = count - found[0].size
    # In pieces, since nearly all values may be equal.
    for start in range(0, values.size, _CHUNK_BYTES):
        equal = np.flatnonzero(values[start : start + _CHUNK_BYTES] == least)[:missing] + start
        found.append(equal)
        missing -= equal.size
        if not missing:
            break
    return np.sort(np.concatenate(found))


def _strings(texts: Sequence[list[bytes]], rows: Array, count: int, batches: bool) -> Array:
    width = min(count, rows.shape[1])
    array: Array = np.empty(len(rows) * width, np.object_)
    # Assigned to an array of objects: numpy would make strings of a fixed width of the list.
    array[:] = [text for row in texts for text in row]
    return array.reshape((len(rows), width) if batches else (width,))
