"""The JSON part of an inference request, read strictly; errors say what was found, what was expected and where.

Source: protocol sections "Inference Request JSON Object" and "Binary Tensor Data Extension". Nothing here knows a
model: the result is the caller's text, whether or not a model accepts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from naiad.errors import InvalidArgumentError, MalformedRequestError, UnsupportedError
from naiad.request import SEQUENCE_END, SEQUENCE_START, ParameterValue
from naiad.shared_memory.region import RegionRef
from naiad.tensor.dtypes import BY_WIRE, DataType
from naiad.wire.json_text import kind_of as _kind
from naiad.wire.json_text import load_json
from naiad.wire.v2.region_parameters import REGION, REGION_OFFSET, REGION_SIZE

MAX_ELEMENTS = 2**63 - 1
MAX_ENTRIES = 4096
"""How many inputs, outputs and parameters a request may have of each: far more than a model has."""

MAX_DESCRIPTION_BYTES: Final = 1 << 24
"""The most bytes of a request beside the data of its tensors: id, names and parameters. Parsing them takes 20 ms."""

MAX_RANK = 64
"""How many dimensions an array can have."""
RESERVED_KEY = "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified."
ENCODING: Final = "binary_data_encoding"
"""The parameter of a request, an input or an output whose only value, ``BASE64``, stands for base64 text in JSON."""
BASE64: Final = "base64"
BASE64_KEY: Final = "b64"
"""The only member of an object in the place of ``data``, with base64 text."""
MAX_SEQUENCE_NAME: Final = 128
_WIDEST_BYTES = 8
_SEQUENCE_KEYS = ("sequence_start", "sequence_end")


@dataclass(slots=True)
class InputHeader:
    """One entry of ``inputs``. Exactly one of ``data``, ``base64``, ``binary_size`` (bytes) and ``region`` is set."""

    name: str
    dtype: DataType
    shape: tuple[int, ...]
    elements: int
    data: list[Any] | None
    binary_size: int | None
    region: RegionRef | None = None
    base64: str | None = None


@dataclass(slots=True)
class OutputHeader:
    """An entry of ``outputs``; ``classification`` 0 means the tensor itself, ``region`` is the shared memory for it,
    ``base64`` means that its data come as base64 text in JSON.
    """

    name: str
    binary: bool
    classification: int = 0
    region: RegionRef | None = None
    base64: bool = False


@dataclass(slots=True)
class InferHeader:
    """The whole JSON part. ``outputs`` None: the caller named none and gets all, in the format that ``binary_default``
    or ``base64_default`` says.

    ``empty_final``: the caller wants an empty final response when the final flag comes without a response.
    """

    id: str = ""
    parameters: dict[str, ParameterValue] = field(default_factory=dict)
    priority: int = 0
    timeout_us: int = 0
    sequence_id: int | str = 0
    sequence_start: bool = False
    sequence_end: bool = False
    binary_default: bool = False
    base64_default: bool = False
    empty_final: bool = False
    inputs: list[InputHeader] = field(default_factory=list)
    outputs: list[OutputHeader] | None = None

    @property
    def flags(self) -> int:
        """``sequence_start`` and ``sequence_end`` as ``RequestOptions`` has them."""
        return SEQUENCE_START * self.sequence_start | SEQUENCE_END * self.sequence_end

    def plan_key(self, of_any_sequence: bool = False) -> tuple[object, ...] | None:
        """The parts of the request that decide whether and how it fits a model: all but id and data. None with
        parameters.

        Requests with equal forms have equal plans; with ``of_any_sequence``, plans that differ in the sequence alone.
        """
        if self.parameters:
            return None
        # Tuples of lists: from generators they take a quarter longer.
        inputs = tuple([(i.name, i.dtype.wire, i.shape, i.binary_size, i.region) for i in self.inputs])
        outputs = tuple([(o.name, o.binary, o.classification, o.region, o.base64) for o in self.outputs or ()])
        sequence_id = None if of_any_sequence else self.sequence_id
        sequence = (sequence_id, self.sequence_start, self.sequence_end)
        formats = (self.binary_default, self.base64_default)
        return inputs, outputs, formats, self.priority, self.timeout_us, sequence, self.empty_final


def parse_infer_header(raw: bytes | bytearray | memoryview) -> InferHeader:
    """Parse the JSON part of an inference request.

    Raises:
        MalformedRequestError: the JSON is broken, or a field is missing or of the wrong type.
        InvalidArgumentError: a value is of the right type but not allowed.
    """
    return header_of(load_json(raw))


def header_of(root: Any) -> InferHeader:
    """The JSON part of an inference request from its parsed JSON value; errors as ``parse_infer_header``."""
    if not isinstance(root, dict):
        raise MalformedRequestError(f"Unable to parse 'inputs': the request must be a JSON object, found {_kind(root)}")
    header = InferHeader()
    if "id" in root:
        header.id = _string(root["id"], "id")
    if "parameters" in root:
        _read_parameters(header, root["parameters"])
    inputs = _array(_required(root, "inputs", "the request"), "inputs")
    check_number(len(inputs), "inputs")
    header.inputs = [_read_input(entry, i) for i, entry in enumerate(inputs)]
    outputs = root.get("outputs")
    if outputs is not None or "outputs" in root:
        entries = _array(outputs, "outputs")
        check_number(len(entries), "outputs")
        # An empty list names no output, so the caller gets all.
        header.outputs = [_read_output(entry, i, header.base64_default) for i, entry in enumerate(entries)] or None
    return header


def check_number(found: int, name: str) -> None:
    """Check how many entries a list of a request has.

    Raises:
        InvalidArgumentError: more than ``MAX_ENTRIES``.
    """
    if found > MAX_ENTRIES:
        raise InvalidArgumentError(f"the request has {found} entries in '{name}', expected at most {MAX_ENTRIES}")


def check_description(size: int) -> None:
    """Check how long the description of a request is.

    Raises:
        InvalidArgumentError: more than ``MAX_DESCRIPTION_BYTES``.
    """
    if size > MAX_DESCRIPTION_BYTES:
        raise InvalidArgumentError(
            f"the request has {size} bytes beside the data of its tensors (its id, names and parameters), expected at "
            f"most {MAX_DESCRIPTION_BYTES}: send large values as inputs"
        )


def check_rank(found: int, name: str) -> None:
    """Check how many dimensions the input ``name`` has.

    Raises:
        InvalidArgumentError: more than ``MAX_RANK``.
    """
    if found > MAX_RANK:
        raise InvalidArgumentError(f"invalid shape for input '{name}': {found} dimensions, expected at most {MAX_RANK}")


def check_sequence_name(name: str) -> str:
    """A sequence id that is a text, as it came.

    Raises:
        UnsupportedError: it is longer than ``MAX_SEQUENCE_NAME`` characters.
    """
    # Bytes are counted, although the text says characters.
    if len(name.encode(errors="surrogatepass")) > MAX_SEQUENCE_NAME:
        raise UnsupportedError(f"string correlation ID cannot be longer than {MAX_SEQUENCE_NAME} characters")
    return name


def _read_parameters(header: InferHeader, found: Any) -> None:
    if not isinstance(found, dict):
        raise MalformedRequestError(
            f"failed to get request params.: 'parameters' must be an object, found {_kind(found)}"
        )
    check_number(len(found), "parameters")
    for key, value in found.items():
        if key == "sequence_id":
            header.sequence_id = (
                check_sequence_name(value)
                if isinstance(value, str)
                else _unsigned(value, key, "an unsigned integer or a string")
            )
        elif key in _SEQUENCE_KEYS:
            setattr(header, key, _boolean(value, key))
        elif key == "priority":
            header.priority = _unsigned(value, key)
        elif key == "timeout":
            header.timeout_us = _unsigned(value, key)
        elif key == "binary_data_output":
            header.binary_default = _boolean(value, key)
        elif key == ENCODING:
            header.base64_default = _is_base64(found, "the request")
        elif key.startswith("triton_"):
            raise InvalidArgumentError(RESERVED_KEY)
        elif isinstance(value, bool | int | float | str):
            header.parameters[key] = value
        else:
            raise InvalidArgumentError(
                f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'."
            )
    if header.base64_default and header.binary_default:
        raise InvalidArgumentError(f"the request can't set both 'binary_data_output' and '{ENCODING}'")


def _read_input(entry: Any, index: int) -> InputHeader:
    place = f"inputs[{index}]"
    if not isinstance(entry, dict):
        raise _one_source(())
    parameters = entry.get("parameters")
    fields = parameters if isinstance(parameters, dict) else {}
    _check_one_source("data" in entry, "binary_data_size" in fields, "shared_memory_region" in fields)
    name = _string(_required(entry, "name", place), "name")
    dims = _array(_required(entry, "shape", place), "shape")
    check_rank(len(dims), name)
    shape = _shape(dims, name)
    wire = _string(_required(entry, "datatype", place), "datatype")
    dtype = BY_WIRE.get(wire)
    if dtype is None:
        raise InvalidArgumentError(f"invalid datatype for input {name}")
    size = _binary_size(fields)
    data, base64 = _read_data(entry, fields, name)
    if data is not None:
        check_in_json(dtype, name)
    region = _region(fields, f"input '{name}'")
    elements = count_elements(shape, name)
    return InputHeader(name, dtype, shape, elements, data, size, region, base64)


def _read_data(entry: dict[str, Any], parameters: dict[str, Any], name: str) -> tuple[list[Any] | None, str | None]:
    """The member ``data`` of an input: a list, or the text of base64; neither where its data are elsewhere."""
    is_text = _is_base64(parameters, f"input '{name}'")
    if "data" not in entry:
        if is_text:
            raise InvalidArgumentError(f"input '{name}' sets '{ENCODING}', expected its base64 text in 'data'")
        return None, None
    data = entry["data"]
    if isinstance(data, dict) and BASE64_KEY in data:
        data, is_text = _base64_member(data, name), True
    if not is_text:
        hint = f"; base64 text needs the parameter '{ENCODING}' of its input" if isinstance(data, str) else ""
        return _array(data, "data", hint), None
    if not isinstance(data, str):
        raise _not_base64(name, f"expected base64 text, found {_kind(data)}")
    return None, data


def _base64_member(data: dict[str, Any], name: str) -> Any:
    if len(data) > 1:
        raise _not_base64(name, f"expected the member '{BASE64_KEY}' alone, found {len(data)} members")
    return data[BASE64_KEY]


def _not_base64(name: str, problem: str) -> MalformedRequestError:
    return MalformedRequestError(f"Unable to parse 'data' of input '{name}': {problem}")


def _is_base64(parameters: dict[str, Any], place: str) -> bool:
    """Whether the parameters of ``place`` say that data come as base64 text."""
    if ENCODING not in parameters:
        return False
    if parameters[ENCODING] != BASE64:
        raise InvalidArgumentError(
            f"parameter '{ENCODING}' of {place}: expected '{BASE64}', found {_kind(parameters[ENCODING])}"
        )
    return True


def check_in_json(dtype: DataType, name: str) -> None:
    """Check that the data of the input ``name`` may come in JSON.

    Raises:
        InvalidArgumentError: the datatype is FP16 or BF16.
    """
    if not dtype.in_json:
        raise InvalidArgumentError(
            f"receiving {dtype.wire} data via JSON is not supported. Please use the binary data format for input {name}"
        )


def _check_one_source(data: bool, binary: bool, region: bool) -> None:
    given = [n for n, on in (("data", data), ("binary_data_size", binary), ("shared_memory_region", region)) if on]
    if len(given) != 1:
        raise _one_source(given)


def _region(parameters: dict[str, Any], place: str) -> RegionRef | None:
    """The part of a region that an input or an output names in its parameters; None without one."""
    if REGION not in parameters:
        # They mean nothing then, and a value of the wrong type is a mistake all the same.
        for key in (REGION_OFFSET, REGION_SIZE):
            if key in parameters:
                _unsigned(parameters[key], key)
        return None
    name = _string(parameters[REGION], REGION)
    offset = _unsigned(parameters.get(REGION_OFFSET, 0), REGION_OFFSET)
    return RegionRef(
        name, offset, _unsigned(_required(parameters, REGION_SIZE, f"'parameters' of {place}"), REGION_SIZE)
    )


def _one_source(given: Sequence[str]) -> InvalidArgumentError:
    found = "set " + " ".join(f"'{n}'" for n in given) if given else "no field is set"
    return InvalidArgumentError(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
        f"'shared_memory_region' in 'parameters'. But {found}"
    )


def _binary_size(parameters: dict[str, Any]) -> int | None:
    if "binary_data_size" not in parameters:
        return None
    return _unsigned(parameters["binary_data_size"], "binary_data_size")


def _read_output(entry: Any, index: int, is_base64: bool) -> OutputHeader:
    """An entry of ``outputs``; ``is_base64``: it is sent as base64 text unless it says something else."""
    place = f"outputs[{index}]"
    if not isinstance(entry, dict):
        raise MalformedRequestError(f"Unable to parse 'outputs': {place} must be an object, found {_kind(entry)}")
    output = OutputHeader(_string(_required(entry, "name", place), "name"), False)
    parameters = entry.get("parameters")
    if isinstance(parameters, dict):
        if "binary_data" in parameters:
            output.binary = _boolean(parameters["binary_data"], "binary_data")
        if _is_base64(parameters, f"output '{output.name}'"):
            output.base64 = True
            other = "shared_memory_region" if REGION in parameters else "binary_data" if output.binary else ""
            if other:
                raise InvalidArgumentError(f"Output can't set both '{other}' and '{ENCODING}'")
        if "classification" in parameters:
            output.classification = _unsigned(parameters["classification"], "classification")
        output.region = _region(parameters, f"output '{output.name}'")
        if output.region is not None:
            other = "classification" if output.classification else "binary_data" if output.binary else ""
            if other:
                raise InvalidArgumentError(f"Output can't set both 'shared_memory_region' and '{other}'")
    output.base64 = output.base64 or (is_base64 and not output.binary and output.region is None)
    return output


def _shape(dims: list[Any], name: str) -> tuple[int, ...]:
    for dim in dims:
        # Not ``isinstance``, for which a bool is an int.
        if type(dim) is not int:
            raise MalformedRequestError(
                f"Unable to parse 'shape' of input '{name}': dimensions must be unsigned integers, found {_kind(dim)}"
            )
    for dim in dims:
        if not 0 <= dim <= MAX_ELEMENTS:
            shown = ",".join(map(str, dims))
            raise MalformedRequestError(
                f"invalid shape for input '{name}': shape [{shown}] contains one or more invalid dimensions: {dim} is "
                f"outside 0 to {MAX_ELEMENTS}"
            )
    return tuple(dims)


def count_elements(shape: tuple[int, ...], name: str) -> int:
    """How many elements an input of this shape has.

    Raises:
        InvalidArgumentError: more than an array can have.
    """
    # An array without elements must have strides nevertheless, so its other dimensions are bounded too.
    limit = MAX_ELEMENTS // _WIDEST_BYTES if 0 in shape else MAX_ELEMENTS
    elements = 1
    for dim in shape:
        elements *= dim or 1
        if elements > limit:
            dims = ",".join(map(str, shape))
            raise InvalidArgumentError(
                f"invalid shape for input '{name}': shape [{dims}] causes total element count to exceed maximum size "
                f"of {MAX_ELEMENTS}"
            )
    return 0 if 0 in shape else elements


def _required(entry: dict[str, Any], key: str, place: str) -> Any:
    if key not in entry:
        raise MalformedRequestError(f"Unable to parse '{key}': {place} has no member '{key}'")
    return entry[key]


def _array(value: Any, key: str, hint: str = "") -> list[Any]:
    if not isinstance(value, list):
        raise MalformedRequestError(f"Unable to parse '{key}': expected an array, found {_kind(value)}{hint}")
    return value


def _string(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise MalformedRequestError(f"Unable to parse '{key}': expected a string, found {_kind(value)}")
    return value


def _boolean(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise MalformedRequestError(f"Unable to parse '{key}': expected true or false, found {_kind(value)}")
    return value


def _unsigned(value: Any, key: str, expected: str = "an unsigned integer") -> int:
    # As in ``_shape``: a bool is no number.
    if type(value) is not int or value < 0 or value >= 2**64:
        raise MalformedRequestError(f"Unable to parse '{key}': expected {expected}, found {_kind(value)}")
    return value
