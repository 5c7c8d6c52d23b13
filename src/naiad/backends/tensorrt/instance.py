"""Instances that run a plan on one GPU: arrays to the GPU, a run, and back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from naiad.backend_api.backend import Arrays, Instance
from naiad.backends.tensorrt.cuda import CapturedRun, DeviceMemory, GpuStream, HostMemory
from naiad.backends.tensorrt.graph_specs import Shapes, WantedGraph, fitting_graph
from naiad.backends.tensorrt.outputs import make_sized_output
from naiad.backends.tensorrt.profiles import Profile, choose
from naiad.backends.tensorrt.session import messages
from naiad.errors import BackendError, InvalidArgumentError

if TYPE_CHECKING:
    from naiad.tensor.dtypes import DataType

log = logging.getLogger("naiad")
Array = np.ndarray[Any, Any]
_INT32: Final = np.dtype(np.int32)


@dataclass(frozen=True, slots=True)
class PlanTensor:
    """One tensor: its type as clients have it, that of the plan, and whether its values are read by the processor."""

    name: str
    dtype: DataType
    stored: np.dtype[Any]
    on_host: bool = False


@dataclass(frozen=True, slots=True)
class PlanTensors:
    """The tensors of a plan; the same for all its instances.

    ``pinned_bytes`` is the most pinned memory of this process, ``pinned`` says whether inputs and outputs use it.
    """

    inputs: tuple[PlanTensor, ...]
    outputs: tuple[PlanTensor, ...]
    pinned: tuple[bool, bool]
    pinned_bytes: int


class TensorMemory:
    """Where one tensor lies, on both sides. It grows with the tensor; ``moved`` is called when it does."""

    def __init__(self, tensor: PlanTensor, pins: bool, limit: int, moved: Callable[[], None]) -> None:
        self.tensor = tensor
        self._pins = pins
        self._limit = limit
        self._moved = moved
        self._size = 0
        self.host = HostMemory(0, limit, pins=False)
        self.device = DeviceMemory(0)

    @property
    def address(self) -> int:
        """Where TensorRT reads or writes it."""
        return self.host.address if self.tensor.on_host else self.device.address

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes."""
        if size <= self._size:
            return
        self._moved()
        # Nothing is there until both sides are: either may find no room.
        self._size = 0
        self.close()
        self.host = HostMemory(size, self._limit, self._pins)
        self.device = DeviceMemory(0 if self.tensor.on_host else size)
        self._size = size

    def view(self, shape: Sequence[int]) -> Array:
        """The host's side as an array."""
        size = self.size_of(shape)
        found: Array = self.host.bytes[:size].view(self.tensor.stored).reshape(shape)
        return found

    def size_of(self, shape: Sequence[int]) -> int:
        """The bytes of such a tensor."""
        return int(np.prod(shape, dtype=np.int64)) * self.tensor.stored.itemsize

    def close(self) -> None:
        """Release both sides."""
        self.host.close()
        self.device.close()


class PlanInstance(Instance):
    """The runs of one plan on one GPU, made and used by one thread.

    Args:
        contexts: an execution context for each profile.
    """

    def __init__(
        self, tensors: PlanTensors, contexts: Mapping[int, Any], profiles: Sequence[Profile], stream: GpuStream
    ) -> None:
        self._stream = stream
        self._contexts = dict(contexts)
        self._profiles = tuple(profiles)
        pins_inputs, pins_outputs = tensors.pinned
        limit = tensors.pinned_bytes
        self._graphs: dict[WantedGraph, tuple[CapturedRun, dict[str, tuple[int, ...]]]] = {}
        self._inputs = {t.name: TensorMemory(t, pins_inputs, limit, self._drop_graphs) for t in tensors.inputs}
        self._outputs = {t.name: TensorMemory(t, pins_outputs, limit, self._drop_graphs) for t in tensors.outputs}
        self._sized = {name: make_sized_output() for name in self._outputs}

    def execute(self, inputs: Arrays, outputs: Sequence[str]) -> Arrays:
        """All outputs.

        Raises:
            BackendError: the run failed, with the words of TensorRT or CUDA.
            InvalidArgumentError: no profile takes the shapes, or a value does not fit the 32 bits of the plan.
        """
        if len(inputs) != len(self._inputs):
            lost = next(name for name in self._inputs if name not in inputs)
            raise BackendError(f"tensorrt: the run has no input '{lost}', and the plan needs every one")
        shapes = {name: inputs[name].shape for name in self._inputs}
        # Before memory is taken: a shape that the plan does not take may be of any size.
        profile = self._profile(shapes)
        graph = fitting_graph(self._graphs, tuple(shapes.values())) if self._graphs else None
        for name, array in inputs.items():
            self._fill(self._inputs[name], array)
        found = self._graphs.get(graph) if graph is not None else None
        try:
            sizes = self._run(shapes, profile) if found is None else self._replay(*found)
        except BackendError:
            # What was handed to the stream before the failure still reads the memory that the next run fills.
            self._settle()
            raise
        rows = None if found is None or graph is None else _rows(graph, shapes)
        return {name: self._result(self._outputs[name], sizes[name], rows) for name in self._outputs}

    def capture(self, model: str, wanted: Sequence[WantedGraph]) -> None:
        """Capture runs; the model then starts each of them in one call. What cannot be captured runs without."""
        # The largest first: nothing grows, and so nothing is dropped, while the others are captured.
        for graph in sorted(wanted, key=lambda found: found.shapes, reverse=True):
            try:
                self._graphs[graph] = self._captured(graph.shapes)
            except (BackendError, InvalidArgumentError) as error:
                log.warning("model '%s': inputs of %s are not captured as a CUDA graph: %s", model, graph.shapes, error)

    def close(self) -> None:
        """Release everything on the GPU."""
        self._stream.wait()
        self._drop_graphs()
        self._contexts.clear()
        for place in (*self._inputs.values(), *self._outputs.values()):
            place.close()
        for sized in self._sized.values():
            sized.close()
        self._stream.close()

    # A run

    def _profile(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        on_device = {name: shape for name, shape in shapes.items() if not self._inputs[name].tensor.on_host}
        return choose(self._profiles, on_device).number

    def _run(self, shapes: Mapping[str, tuple[int, ...]], profile: int) -> dict[str, tuple[int, ...]]:
        sizes = self._enqueue(shapes, profile)
        self._stream.wait()
        return self._fetch_sized(sizes)

    def _replay(self, run: CapturedRun, sizes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        run.launch()
        self._stream.wait()
        return sizes

    def _settle(self) -> None:
        try:
            self._stream.wait()
        except BackendError as error:
            log.warning("a run on a GPU left work behind that fails: %s", error)

    def _fill(self, place: TensorMemory, array: Array) -> None:
        place.reserve(place.size_of(array.shape))
        target = place.view(array.shape)
        if array.dtype.itemsize == place.tensor.stored.itemsize:
            target[...] = array.view(place.tensor.stored) if array.dtype != place.tensor.stored else array
            return
        np.copyto(target, array, casting="same_kind")
        if not np.array_equal(target, array):
            raise InvalidArgumentError(
                f"tensorrt: input '{place.tensor.name}' has a value beyond 32 bits, and the plan has INT32 where the "
                f"configuration says TYPE_INT64"
            )

    def _enqueue(self, shapes: Mapping[str, tuple[int, ...]], profile: int) -> dict[str, tuple[int, ...] | None]:
        """Hand a run to the stream; the shape of each output, None for one that only the run will tell."""
        context = self._contexts[profile]
        for name, shape in shapes.items():
            place = self._inputs[name]
            if not context.set_input_shape(name, shape) or not context.set_tensor_address(name, place.address):
                raise _failure()
            if not place.tensor.on_host and (size := place.size_of(shape)):
                self._stream.to_device(place.device, place.host, size)
        sizes = {name: self._bind_output(context, place) for name, place in self._outputs.items()}
        if not context.execute_async_v3(self._stream.handle):
            raise _failure()
        for name, sized in sizes.items():
            place = self._outputs[name]
            if sized is not None and not place.tensor.on_host and (size := place.size_of(sized)):
                self._stream.to_host(place.host, place.device.address, size)
        return sizes

    def _bind_output(self, context: Any, place: TensorMemory) -> tuple[int, ...] | None:
        name = place.tensor.name
        shape = tuple(context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            # Its size depends on values: TensorRT asks for memory when it knows.
            if not context.set_output_allocator(name, self._sized[name]):
                raise _failure()
            return None
        place.reserve(place.size_of(shape))
        if not context.set_tensor_address(name, place.address):
            raise _failure()
        return shape

    def _fetch_sized(self, sizes: Mapping[str, tuple[int, ...] | None]) -> dict[str, tuple[int, ...]]:
        """Copy the outputs whose sizes the run has told; the shapes of all."""
        found: dict[str, tuple[int, ...]] = {}
        late = False
        for name, shape in sizes.items():
            if shape is None:
                place, sized = self._outputs[name], self._sized[name]
                shape = sized.shape
                place.reserve(place.size_of(shape))
                if size := place.size_of(shape):
                    self._stream.to_host(place.host, sized.address, size)
                    late = True
            found[name] = shape
        if late:
            self._stream.wait()
        return found

    def _result(self, place: TensorMemory, shape: tuple[int, ...], rows: int | None) -> Array:
        array = place.view(shape)
        if rows is not None:
            array = array[:rows]
        dtype = place.tensor.dtype.numpy
        # A copy: the next run writes to the same memory.
        if array.dtype.itemsize == dtype.itemsize:
            copied: Array = array.copy()
            return copied if copied.dtype == dtype else copied.view(dtype)
        widened: Array = array.astype(dtype)
        return widened

    # Captured runs

    def _captured(self, shapes: Shapes) -> tuple[CapturedRun, dict[str, tuple[int, ...]]]:
        by_name = dict(zip(self._inputs, shapes, strict=True))
        profile = self._profile(by_name)
        for name, shape in by_name.items():
            self._inputs[name].reserve(self._inputs[name].size_of(shape))
            self._inputs[name].view(shape).fill(0)
        # Once without: TensorRT does in the first run of a shape what cannot be captured.
        sizes = self._enqueue(by_name, profile)
        self._stream.wait()
        places = (*self._inputs.values(), *self._outputs.values())
        known = {name: shape for name, shape in sizes.items() if shape is not None}
        if len(known) != len(sizes) or any(place.tensor.on_host or not place.host.is_pinned for place in places):
            raise BackendError(
                "tensorrt: a captured run needs inputs and outputs of known size in pinned memory "
                "(--pinned-memory-pool-byte-size)"
            )
        self._stream.begin_capture()
        try:
            self._enqueue(by_name, profile)
        except BaseException:
            self._stream.drop_capture()
            raise
        return self._stream.end_capture(), known

    def _drop_graphs(self) -> None:
        """Forget the captured runs: they have the addresses of memory that is about to go."""
        graphs, self._graphs = self._graphs, {}
        for run, _ in graphs.values():
            run.close()


def _rows(graph: WantedGraph, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """The rows of a batch that runs by a graph for more; None where it has just these."""
    given = tuple(shapes.values())
    return None if graph.shapes == given else given[0][0]


def _failure() -> BackendError:
    return BackendError(f"tensorrt: {messages().taken() or 'the run failed without a reason'}")
