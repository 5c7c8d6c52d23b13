"""``SystemSharedMemoryStatus``, ``-Register`` and ``-Unregister``, and the same for CUDA."""

from __future__ import annotations

from functools import partial
from typing import Any

from naiad.config.messages import message_class
from naiad.engine.engine import Engine
from naiad.errors import InvalidArgumentError, NaiadError
from naiad.frontends.grpc.rpc.call import Body, RpcCall, Unary, fail, reply_message
from naiad.frontends.grpc.v2.replies import check_size, protobuf_method, read_request
from naiad.frontends.inference.shared_memory_admin import register_cuda

MAX_DEVICE_ID = 2**31 - 1


class SharedMemory:
    """The methods of ``inference.GRPCInferenceService`` about shared memory, by their names in the protocol."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._registry = engine.regions

    def methods(self) -> dict[str, Unary]:
        """All of them."""
        handlers = {
            "SystemSharedMemoryStatus": self._system_status,
            "SystemSharedMemoryRegister": self._register_system,
            "SystemSharedMemoryUnregister": self._unregister_system,
            "CudaSharedMemoryStatus": self._cuda_status,
            "CudaSharedMemoryUnregister": self._unregister_cuda,
        }
        methods = {name: protobuf_method(f"{name}Request", handler) for name, handler in handlers.items()}
        methods["CudaSharedMemoryRegister"] = Unary(self._register_cuda, check_room=check_size)
        return methods

    def _system_status(self, request: Any) -> Any:
        response = message_class("SystemSharedMemoryStatusResponse")()
        for region in self._registry.system(request.name):
            shown = response.regions[region.name]
            shown.name, shown.key = region.name, region.key
            shown.offset, shown.byte_size = region.start, region.byte_size
        return response

    def _register_system(self, request: Any) -> Any:
        self._registry.register_system(request.name, request.key, request.offset, request.byte_size)
        return message_class("SystemSharedMemoryRegisterResponse")()

    def _unregister_system(self, request: Any) -> Any:
        self._registry.unregister_system(request.name)
        return message_class("SystemSharedMemoryUnregisterResponse")()

    def _cuda_status(self, request: Any) -> Any:
        response = message_class("CudaSharedMemoryStatusResponse")()
        for region in self._registry.cuda(request.name):
            shown = response.regions[region.name]
            shown.name, shown.device_id, shown.byte_size = region.name, region.device_id, region.byte_size
        return response

    def _unregister_cuda(self, request: Any) -> Any:
        self._registry.unregister_cuda(request.name)
        return message_class("CudaSharedMemoryUnregisterResponse")()

    def _register_cuda(self, call: RpcCall, body: Body) -> None:
        given = read_request(call, message_class("CudaSharedMemoryRegisterRequest"), body)
        if given is None:
            return
        try:
            if not 0 <= given.device_id <= MAX_DEVICE_ID:
                raise InvalidArgumentError(f"'device_id' must be a number from 0 on, found {given.device_id}")
            done = partial(_registered, call)
            register_cuda(self._engine, given.name, given.raw_handle, given.device_id, given.byte_size, done)
        except NaiadError as error:
            fail(call, error)


def _registered(call: RpcCall, error: NaiadError | None) -> None:
    if error is not None:
        fail(call, error)
    else:
        reply_message(call, message_class("CudaSharedMemoryRegisterResponse")())
