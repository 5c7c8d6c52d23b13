"""Outputs whose size depends on the values of a run, such as the boxes that a detector finds."""

from __future__ import annotations

from typing import Any

from naiad.backends.tensorrt.cuda import DeviceMemory


def make_sized_output() -> Any:
    """Memory that TensorRT asks for while it runs, and the shape that it then tells: ``address``, ``shape``."""
    import tensorrt

    class SizedOutput(tensorrt.IOutputAllocator):  # type: ignore[misc]
        """Keeps the memory for the next run."""

        def __init__(self) -> None:
            tensorrt.IOutputAllocator.__init__(self)
            self._memory: DeviceMemory | None = None
            self.shape: tuple[int, ...] = ()

        @property
        def address(self) -> int:
            return 0 if self._memory is None else self._memory.address

        def reallocate_output(self, tensor_name: str, memory: int, size: int, alignment: int) -> int:
            # What cudaMalloc gives is aligned for every type.
            if self._memory is None or self._memory.size < size:
                self.close()
                self._memory = DeviceMemory(size)
            return self._memory.address

        def reallocate_output_async(self, tensor_name: str, memory: int, size: int, alignment: int, stream: int) -> int:
            return self.reallocate_output(tensor_name, memory, size, alignment)

        def notify_shape(self, tensor_name: str, shape: Any) -> None:
            self.shape = tuple(shape)

        def close(self) -> None:
            memory, self._memory = self._memory, None
            if memory is not None:
                memory.close()

    return SizedOutput()
