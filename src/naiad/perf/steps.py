"""What requests hold, and what is known of the model that they go to."""

from __future__ import annotations

from dataclasses import dataclass, field

from naiad.shared_memory.region import RegionRef


@dataclass(frozen=True, slots=True)
class TensorDescription:
    """One input or output of a model.

    Attributes:
        shape: the shape of one request's tensor without the batch dimension; -1 where it may vary.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    is_optional: bool = False
    is_shape_tensor: bool = False


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model as its server describes it.

    Attributes:
        max_batch_size: 0 when tensors have no batch dimension.
        composing: the models of the steps of an ensemble, in the order of the steps.
        instances: how many instances the server runs; 0 when it does not say.
    """

    name: str
    version: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    max_batch_size: int = 0
    is_sequence: bool = False
    is_decoupled: bool = False
    has_response_cache: bool = False
    composing: tuple[ModelDescription, ...] = ()
    instances: int = 0


@dataclass(frozen=True, slots=True)
class TensorValue:
    """The value of one tensor of a request.

    Attributes:
        shape: the whole shape, with the batch dimension where the model has one.
        data: the elements in the binary form of the protocol: little endian, row by row; BYTES elements each behind a
            length of four bytes.
        region: where in a registered region of shared memory the data lie; None when the request carries them.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes
    region: RegionRef | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One request.

    Attributes:
        expected: the outputs that are compared with those of the response; empty when nothing is compared.
        timestamp_ms: when a fixed schedule sends it, counted from the start.
        payload: the body as JSON text, for services whose requests are not tensors.
        session_id: the conversation that it belongs to; the steps of one session are a stream of their own.
        delay_ms: how long its session rests after its response.
    """

    inputs: tuple[TensorValue, ...]
    expected: tuple[TensorValue, ...] = ()
    timestamp_ms: float | None = None
    payload: bytes = b""
    session_id: str = ""
    delay_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class StepStream:
    """Steps that are sent one after the other: the steps of a sequence, or requests that take turns."""

    steps: tuple[Step, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class RegionLayout:
    """Two regions of shared memory: the inputs of all steps lie in one, outputs are written to the other.

    Attributes:
        streams: the steps, whose inputs have their place in the region.
        outputs: the place of each output by its name. Requests in flight share it.
        input_region, output_region: the names of the regions.
        input_bytes, output_bytes: their sizes; 0 for a region that is not needed.
        writes: the offsets of the inputs' data, and the data.
    """

    streams: tuple[StepStream, ...]
    outputs: dict[str, RegionRef]
    input_region: str
    input_bytes: int
    output_region: str
    output_bytes: int
    writes: tuple[tuple[int, bytes], ...] = ()
