"""The samples that a version is warmed up with: those of its configuration, or with ``--auto-warmup`` those made up
from its signature.

All of them are checked before the first instance starts. The data of a sample is made when an instance is about to run
it, and is dropped when no instance uses it any more: together they may be as large as all requests in flight.

This reads files: it is called in loading threads. Source of the rules and texts: the reference's
``GenerateWarmupData``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, overload
from weakref import WeakValueDictionary
from zlib import crc32

import numpy as np

from naiad.config.sequence import run_spec
from naiad.config.spec import ModelSpec, TensorSpec
from naiad.config.warmup import DataSource, WarmupInput, WarmupSample
from naiad.errors import InternalError, ModelLoadError
from naiad.execution.instances.warmup import Sample
from naiad.execution.model_directory import CalledInput, Checked
from naiad.request import Array, RequestOptions, request_label
from naiad.telemetry.metrics.host import usable_memory_bytes
from naiad.tensor.bytes_codec import decode_bytes
from naiad.tensor.dtypes import DataType

FOLDER: Final = "warmup"
MAX_BYTES: Final = 1 << 31
"""The most bytes of one input of a sample: as many as a request over gRPC may have."""
MAX_REQUESTS: Final = 1 << 16
"""Requests of one sample."""
# An element of BYTES is a Python object, which costs the array a pointer.
_POINTER: Final = 8
# The default of --max-in-flight-bytes: a quarter of the memory.
_MEMORY_SHARE: Final = 4
_LABEL: Final = request_label("")

Check = Callable[[ModelSpec, Sequence[CalledInput], Sequence[str], str], Checked]
"""The rules for requests: ``Models.check``."""


class LazySamples(Sequence[Sample]):
    """Samples that are made when they are read, and shared by the instances that run them at the same time.

    Used in any thread.
    """

    def __init__(self, makers: Sequence[Callable[[], Sample]]) -> None:
        self._makers = makers
        self._made: WeakValueDictionary[int, Sample] = WeakValueDictionary()
        # Two instances that begin together would otherwise both make the first one.
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._makers)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> LazySamples: ...
    def __getitem__(self, index: int | slice) -> Sample | LazySamples:
        if isinstance(index, slice):
            return LazySamples(self._makers[index])
        with self._lock:
            found = self._made.get(index)
            if found is None:
                found = self._made[index] = self._makers[index]()
            return found


def samples_of(
    spec: ModelSpec, folder: Path, check: Check | None, is_automatic: bool, max_bytes: int = 0
) -> LazySamples:
    """The samples that the configuration asks for or, where it asks for none and ``is_automatic``, made up ones.

    ``max_bytes`` and errors as ``configured_samples``.
    """
    if not spec.warmup and is_automatic:
        return automatic_samples(run_spec(spec), max_bytes)
    return configured_samples(spec, folder, check, max_bytes)


def runs_of(spec: ModelSpec, samples: LazySamples) -> int:
    """How often each instance runs, without making a sample for it."""
    return sum(sample.count for sample in spec.warmup) or len(samples)


def configured_samples(spec: ModelSpec, folder: Path, check: Check | None, max_bytes: int = 0) -> LazySamples:
    """The samples of ``model_warmup``, which are checked but not made; ``folder`` is the model's own.

    ``max_bytes`` bounds their requests together, in bytes; 0 for the share of the memory that requests in flight have.

    Raises:
        ModelLoadError: one is wrong, or they are too large together.
        NaiadError: one is no request that the model takes. Reading a sample raises the same where its file has changed,
            or its BYTES are not what they should be.
    """
    if not spec.warmup:
        # Most models: the machine is not asked for its memory.
        return LazySamples([])
    _check_sum(spec, max_bytes or usable_memory_bytes() // _MEMORY_SHARE)
    inside = folder / FOLDER
    outputs = [_checked(spec, sample, inside, check) for sample in spec.warmup]
    pairs = zip(spec.warmup, outputs, strict=True)
    return LazySamples([partial(_configured, spec, sample, inside, names) for sample, names in pairs])


def _checked(spec: ModelSpec, sample: WarmupSample, folder: Path, check: Check | None) -> tuple[str, ...]:
    """Check a sample without making it; the outputs that it asks for."""
    lead = (1,) if spec.max_batch_size else ()
    for given in sample.inputs:
        _check_input(spec, given)
        if given.dtype is None:
            raise ModelLoadError(_no_datatype(spec, given.name))
        if given.source is DataSource.FILE:
            _check_file(spec, given, given.dtype, folder)
    _check_size(spec, sample)
    named = [CalledInput(i.name, i.dtype, (*lead, *i.dims)) for i in sample.inputs if i.dtype and not i.is_control]
    return tuple(spec.outputs) if check is None else check(spec, named, (), "").outputs


def _configured(spec: ModelSpec, sample: WarmupSample, folder: Path, outputs: tuple[str, ...]) -> Sample:
    lead = (1,) if spec.max_batch_size else ()
    inputs: dict[str, Array] = {
        given.name: _data(spec, given, given.dtype, folder).reshape((*lead, *given.dims))
        for given in sample.inputs
        if given.dtype is not None
    }
    for tensor in run_spec(spec).inputs.values():
        if tensor.name not in spec.inputs and tensor.name not in inputs:
            # A control or a state.
            inputs[tensor.name] = _zeros(tensor.dtype, math.prod(_fixed(tensor))).reshape((*lead, *_fixed(tensor)))
    options = RequestOptions(outputs, 1, _shape_key(spec, inputs))
    return Sample(sample.name, sample.count, sample.batch_size, options, inputs)


def _check_sum(spec: ModelSpec, max_bytes: int) -> None:
    """Check the bytes of all samples before the first one is made."""
    together = sum(_bytes_of(spec, sample) for sample in spec.warmup)
    if together > max_bytes:
        raise ModelLoadError(
            f"the {len(spec.warmup)} sample(s) of 'model_warmup' of model '{spec.name}' have {together} bytes "
            f"together, and at most {max_bytes} are taken; lower their number, 'dims' or 'batch_size', or raise "
            "--max-in-flight-bytes"
        )


def _bytes_of(spec: ModelSpec, sample: WarmupSample) -> int:
    """The bytes of the requests of a sample that run together.

    Raises:
        ModelLoadError: an input is too large by itself. All other mistakes are found by ``_checked``.
    """
    shapes = {i.name: (i.dtype, i.dims) for i in sample.inputs}
    for tensor in run_spec(spec).inputs.values():
        if tensor.name not in spec.inputs:
            shapes.setdefault(tensor.name, (tensor.dtype, _fixed(tensor)))
    each = 0
    for name, (dtype, dims) in shapes.items():
        size = math.prod(max(0, dim) for dim in dims) * ((dtype.itemsize or _POINTER) if dtype else 0)
        if size > MAX_BYTES:
            raise ModelLoadError(
                f"warmup setting asks for {size} bytes for input '{name}', and a sample has at most {MAX_BYTES}"
            )
        each += size
    # More requests than these are refused in the words of the reference.
    return each * max(1, min(sample.batch_size, spec.max_batch_size, MAX_REQUESTS))


def _check_input(spec: ModelSpec, given: WarmupInput) -> None:
    if -1 in given.dims:
        raise ModelLoadError(
            f"warmup setting expects all variable-size dimensions are specified for input '{given.name}'"
        )
    if min(given.dims, default=0) < 0:
        raise ModelLoadError(f"warmup setting has negative dims {list(given.dims)} for input '{given.name}'")
    if given.source is None:
        raise ModelLoadError(f"{_LABEL}warmup setting expects input '{given.name}' to have input_data_type set")
    if not given.is_control and given.name not in spec.inputs:
        known = ", ".join(f"'{name}'" for name in spec.inputs)
        raise ModelLoadError(
            f"{_LABEL}warmup setting has data for input '{given.name}', which is not in model '{spec.name}'. "
            + (f"Its inputs are {known}" if known else "It has no inputs")
        )


def _no_datatype(spec: ModelSpec, name: str) -> str:
    tensor = spec.inputs.get(name)
    expected = f", but model '{spec.name}' expects '{tensor.dtype.wire}'" if tensor else ""
    return f"{_LABEL}inference input '{name}' data-type is '<invalid>'{expected}"


def _check_size(spec: ModelSpec, sample: WarmupSample) -> None:
    """Check how many requests run together, with the text that a backend of the reference has for it."""
    most = max(1, spec.max_batch_size)
    if sample.batch_size > most:
        instance = f"{spec.instance_groups[0].name}_0" if spec.instance_groups else spec.name
        raise ModelLoadError(
            f"failed to run warmup sample '{sample.name}': batch size {sample.batch_size} for '{instance}', max "
            f"allowed is {spec.max_batch_size}"
        )
    if sample.batch_size > MAX_REQUESTS:
        raise ModelLoadError(
            f"failed to run warmup sample '{sample.name}': batch size {sample.batch_size}, and a sample has at most "
            f"{MAX_REQUESTS} requests"
        )


def _data(spec: ModelSpec, given: WarmupInput, dtype: DataType, folder: Path) -> Array:
    """The elements of one input, flat."""
    elements = math.prod(given.dims)
    size = elements * (dtype.itemsize or _POINTER)
    try:
        if given.source is DataSource.FILE:
            return _from_file(spec, given, dtype, elements, folder)
        if given.source is DataSource.RANDOM and not dtype.is_bytes:
            return _random(dtype, elements, given.name)
        return _zeros(dtype, elements)
    except MemoryError as error:
        raise ModelLoadError(f"there is no memory for the {size} bytes of warmup input '{given.name}'") from error


def _zeros(dtype: DataType, elements: int) -> Array:
    """Zeros; for BYTES elements without a byte."""
    return np.full(elements, b"", np.object_) if dtype.is_bytes else np.zeros(elements, dtype.numpy)


def _random(dtype: DataType, elements: int, name: str) -> Array:
    """Numbers of the whole range of an integer type, from 0 to 1 for other numbers. The same at each load."""
    # Not ``hash``, which differs from process to process.
    generator = np.random.default_rng(crc32(name.encode()))
    kind = dtype.numpy.kind
    if kind in "iu":
        return np.frombuffer(generator.bytes(elements * dtype.itemsize), dtype.numpy)
    if kind == "b":
        return generator.integers(0, 2, elements).astype(dtype.numpy)
    return generator.random(elements, np.float32).astype(dtype.numpy, copy=False)


def _check_file(spec: ModelSpec, given: WarmupInput, dtype: DataType, folder: Path) -> Path:
    """Check that a file is there and has enough bytes; its path."""
    inside = PurePosixPath(given.file)
    if inside.is_absolute() or ".." in inside.parts or not inside.parts or "\0" in given.file:
        raise ModelLoadError(
            f"warmup setting names the file '{given.file}' for input '{given.name}': it has to be one in the model's "
            f"folder '{FOLDER}'"
        )
    path = folder / inside
    try:
        if not path.is_file():
            raise FileNotFoundError("No such file or directory")
        size = path.stat().st_size
    except OSError as error:
        raise _unreadable(spec, given, error) from error
    if not dtype.is_bytes:
        _check_length(given, math.prod(given.dims) * dtype.itemsize, size)
    elif size > MAX_BYTES:
        raise ModelLoadError(f"warmup setting names the file '{given.file}' of {size} bytes, at most {MAX_BYTES}")
    return path


def _from_file(spec: ModelSpec, given: WarmupInput, dtype: DataType, elements: int, folder: Path) -> Array:
    """The first bytes of a file as a tensor; a file of BYTES has exactly the elements, each behind its length."""
    # Checked again: it may have grown or gone since the load began.
    path = _check_file(spec, given, dtype, folder)
    wanted = -1 if dtype.is_bytes else elements * dtype.itemsize
    try:
        with path.open("rb") as file:
            raw = file.read(wanted)
    except OSError as error:
        raise _unreadable(spec, given, error) from error
    if dtype.is_bytes:
        return decode_bytes(raw, elements, f"inference input '{given.name}' for model '{spec.name}'")
    _check_length(given, wanted, len(raw))
    return np.frombuffer(raw, dtype.numpy)


def _unreadable(spec: ModelSpec, given: WarmupInput, error: OSError) -> InternalError:
    place = f"{spec.name}/{FOLDER}/{given.file}"
    return InternalError(f"failed to open text file for read {place}: {error.strerror or error}")


def _check_length(given: WarmupInput, wanted: int, size: int) -> None:
    if size < wanted:
        raise ModelLoadError(
            f"{_LABEL}warmup setting expects {wanted} bytes, but the data provided from {given.file} only has "
            f"{size} bytes"
        )


# From the signature


def automatic_samples(spec: ModelSpec, max_bytes: int = 0) -> LazySamples:
    """A sample of zeros for one row, for each preferred batch size and for the largest batch; none has to succeed.

    Variable dimensions are 1, optional inputs are left out unless all are, and so are batches of too many bytes:
    ``max_bytes`` as in ``configured_samples``.
    """
    return LazySamples(list(_automatic(spec, max_bytes or usable_memory_bytes() // _MEMORY_SHARE)))


def _automatic(spec: ModelSpec, max_bytes: int) -> Iterator[Callable[[], Sample]]:
    left = max_bytes
    tensors = [t for t in spec.inputs.values() if not t.optional] or list(spec.inputs.values())
    preferred = spec.batching.preferred_batch_sizes if spec.batching else ()
    for rows in sorted({1, *preferred, spec.max_batch_size} - {0}) if spec.max_batch_size else (1,):
        lead = (rows,) if spec.max_batch_size else ()
        shapes = {t.name: (*(() if t.is_shape_tensor else lead), *_fixed(t)) for t in tensors}
        sizes = [math.prod(shapes[t.name]) * (t.dtype.itemsize or _POINTER) for t in tensors]
        if max(sizes, default=0) > MAX_BYTES or sum(sizes) > left:
            continue
        left -= sum(sizes)
        yield partial(_zero_sample, spec, rows, shapes)


def _zero_sample(spec: ModelSpec, rows: int, shapes: Mapping[str, tuple[int, ...]]) -> Sample:
    inputs = {n: _zeros(spec.inputs[n].dtype, math.prod(shape)).reshape(shape) for n, shape in shapes.items()}
    options = RequestOptions(tuple(spec.outputs), rows, _shape_key(spec, inputs))
    return Sample(f"auto_{rows}", 1, 1, options, inputs, is_needed=False)


def _fixed(tensor: TensorSpec) -> tuple[int, ...]:
    return tuple(1 if dim < 0 else dim for dim in tensor.dims)


def _shape_key(spec: ModelSpec, inputs: Mapping[str, Array]) -> object:
    lead = 1 if spec.max_batch_size else 0
    return tuple(sorted((name, array.shape[lead:]) for name, array in inputs.items()))
