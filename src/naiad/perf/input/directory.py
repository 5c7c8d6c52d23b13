"""A directory with a file for each tensor of one step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from naiad.perf.input.element_bytes import datatype_of, element_count, encode_bytes_elements
from naiad.perf.input.error import PerfInputError
from naiad.perf.input.location import Location
from naiad.perf.input.shapes import Shapes
from naiad.perf.input.tensor_data import checked_value, shape_of
from naiad.perf.steps import ModelDescription, Step, TensorDescription, TensorValue


def read_directory(folder: Path, model: ModelDescription, shapes: Shapes, where: Location) -> Step:
    """The step of a directory, without the batch dimension.

    A file has the name of its tensor. It holds the elements in the binary form of the protocol, or, for BYTES, one
    element per line. Files with names of outputs hold what the response is compared with.

    Raises:
        PerfInputError: a file is missing, is of no tensor, or has another size than the tensor.
    """
    _check_names(folder, model)
    inputs = _tensors(folder, model.inputs, shapes, where)
    given = {value.name for value in inputs}
    for tensor in model.inputs:
        if tensor.name not in given and not tensor.is_optional:
            raise PerfInputError(
                f"failed to open file '{folder / tensor.name}': there is none, expected the data of the input "
                f"{tensor.name} in it"
            )
    return Step(inputs, _tensors(folder, model.outputs, {}, where))


def _check_names(folder: Path, model: ModelDescription) -> None:
    names = [tensor.name for tensor in (*model.inputs, *model.outputs)]
    try:
        files = sorted(folder.iterdir())
    except OSError as error:
        raise PerfInputError(f"failed to open the directory '{folder}': {error.strerror}") from None
    for file in files:
        # Not those that systems leave behind, such as .DS_Store, and not folders of names with a slash.
        is_known = file.name in names or any(name.startswith(f"{file.name}/") for name in names)
        if not file.name.startswith(".") and not is_known:
            raise PerfInputError(
                f"Provided data file '{file}' does not correspond to a valid model input or output.: expected "
                f"{', '.join(names)}"
            )


def _tensors(
    folder: Path, tensors: Sequence[TensorDescription], shapes: Shapes, where: Location
) -> tuple[TensorValue, ...]:
    found = []
    for tensor in tensors:
        file = _file(folder, tensor)
        if file.is_file():
            found.append(_tensor(file, tensor, shapes, where))
    return tuple(found)


def _file(folder: Path, tensor: TensorDescription) -> Path:
    """The file of a tensor. The server chooses the names, and gets what is read: nothing outside the directory."""
    name = PurePosixPath(tensor.name)
    if name.is_absolute() or ".." in name.parts:
        raise PerfInputError(f"the tensor '{tensor.name}' has a name that leads out of the directory '{folder}'")
    return folder / name


def _tensor(file: Path, tensor: TensorDescription, shapes: Shapes, where: Location) -> TensorValue:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise PerfInputError(f"failed to open file '{file}': {error.strerror}") from None
    if datatype_of(tensor).is_bytes:
        return _strings(data, file, tensor, shapes, where)
    itemsize = datatype_of(tensor).itemsize
    elements = len(data) // itemsize if len(data) % itemsize == 0 else None
    shape = shape_of(tensor, shapes, elements, (), where)
    if len(data) != (size := element_count(shape) * itemsize):
        raise PerfInputError(
            f"provided data for input {tensor.name} has byte size {len(data)}, expect {size}: '{file}'"
        )
    return checked_value(tensor, shape, data, where)


def _strings(data: bytes, file: Path, tensor: TensorDescription, shapes: Shapes, where: Location) -> TensorValue:
    lines = data.split(b"\n")
    if not lines[-1]:
        # What ends with the end of a line has no line behind it.
        lines.pop()
    shape = shape_of(tensor, shapes, len(lines), (), where)
    if len(lines) != (count := element_count(shape)):
        raise PerfInputError(
            f"provided data for input {tensor.name} has {len(lines)} elements, expect {count}: '{file}'"
        )
    return checked_value(tensor, shape, encode_bytes_elements(lines), where)
