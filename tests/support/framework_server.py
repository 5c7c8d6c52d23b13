"""A server that serves the models of one framework, loaded and unloaded over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
from tritonclient.grpc import service_pb2, service_pb2_grpc

from naiad.backend_api.backend import Arrays
from naiad.tensor.bytes_codec import decode_bytes, encode_bytes
from naiad.tensor.dtypes import BY_NUMPY, BY_WIRE
from naiad.testing import RunningServer, server_environment, serving, wait_until, write_model
from support.core_policies import POLICIES
from support.framework import Framework, Signature

CALL_S = 200.0
"""The longest load or inference on a busy machine, in seconds."""
ONE = "instance_group [ { kind: KIND_CPU count: 1 } ]\n"
Write = Callable[[Path], Signature]


class FrameworkServer:
    """A running server, its repository, and what clients ask of it."""

    def __init__(self, framework: Framework, mode: str, server: RunningServer, folder: Path, channel: Any) -> None:
        self.framework = framework
        self.mode = mode
        self.server = server
        self.folder = folder
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        self._cached: dict[str, Signature] = {}
        self._instances: dict[str, int] = {}

    # Models

    def path(self, model: str) -> Path:
        """Where the file of a model is."""
        return self.folder / "models" / model / "1" / self.framework.file

    def write(self, model: str, write: Write, more: str = ONE, config: str | None = None) -> Signature:
        """Write a model; ``config`` stands for the text of its signature."""
        folder = write_model(self.folder / "models", model)
        signature = write(self.path(model))
        text = signature.text() if config is None else config
        (folder / "config.pbtxt").write_text(f"{self.framework.config}\n{text}{more}", encoding="utf-8")
        return signature

    def load(self, model: str) -> None:
        """Load a model; ``grpc.RpcError`` if that fails."""
        self._stub.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name=model), timeout=CALL_S)
        self._instances[model] = sum(group.count for group in self.config(model).instance_group)

    def unload(self, model: str) -> None:
        """Unload a model and wait until its processes have ended."""
        self._stub.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name=model), timeout=CALL_S)
        del self._instances[model]
        self.wait_settled()

    def wait_settled(self) -> None:
        """Wait until every loaded model is ready, and no process is there but theirs."""
        count = sum(self._instances.values())
        most = {"thread": 0, "process": count, "shared": min(count, 1)}[self.mode]
        wait_until(
            lambda: len(self.processes()) == most and all(map(self.is_ready, self._instances)),
            CALL_S,
            f"{most} processes serve {', '.join(self._instances)}",
        )

    def load_error(self, model: str) -> str:
        """Why a model does not load."""
        try:
            self.load(model)
        except grpc.RpcError as error:
            return str(error.details())
        raise AssertionError(f"model {model} loads")

    @contextmanager
    def serving(self, model: str, write: Write, more: str = ONE, config: str | None = None) -> Iterator[Signature]:
        """A model from its load to its unload."""
        signature = self.write(model, write, more, config)
        self.load(model)
        try:
            yield signature
        finally:
            self.unload(model)

    def cached(self, model: str, write: Write, more: str = ONE) -> Signature:
        """A model that stays until the server ends, written and loaded by the first test that needs it."""
        if model not in self._cached:
            self._cached[model] = self.write(model, write, more)
            self.load(model)
        return self._cached[model]

    def is_ready(self, model: str) -> bool:
        """Whether a model is ready."""
        request = service_pb2.ModelReadyRequest(name=model)
        return bool(self._stub.ModelReady(request, timeout=CALL_S).ready)

    def config(self, model: str) -> Any:
        """The configuration of a loaded model, as a protobuf message."""
        return self._stub.ModelConfig(service_pb2.ModelConfigRequest(name=model), timeout=CALL_S).config

    def metadata(self, model: str) -> Any:
        """The metadata of a loaded model."""
        return self._stub.ModelMetadata(service_pb2.ModelMetadataRequest(name=model), timeout=CALL_S)

    def executions(self, model: str) -> int:
        """How often a model has run."""
        return int(self.server.statistics(model)["execution_count"])

    # Requests

    def infer(self, model: str, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """The outputs of one request; ``grpc.RpcError`` if it fails."""
        return self.begin(model, inputs)()

    def infer_error(self, model: str, inputs: Arrays) -> tuple[grpc.StatusCode, str]:
        """Why a request fails."""
        try:
            found = self.infer(model, inputs)
        except grpc.RpcError as error:
            return error.code(), str(error.details())
        raise AssertionError(f"model {model} answers {found}")

    def begin(self, model: str, inputs: Arrays) -> Callable[[], dict[str, np.ndarray[Any, Any]]]:
        """Send one request and return at once; calling the result waits for the outputs."""
        call = self._stub.ModelInfer.future(_message(model, inputs), timeout=CALL_S)
        return lambda: _outputs(call.result())

    def infer_all(self, model: str, requests: Sequence[Arrays]) -> list[dict[str, np.ndarray[Any, Any]]]:
        """The outputs of requests that are all sent before the first response is read."""
        return [wait() for wait in [self.begin(model, inputs) for inputs in requests]]

    # Processes

    def processes(self) -> list[psutil.Process]:
        """The processes of the models."""
        return list(psutil.Process(self.server.process.pid).children())

    def anonymous_memory_bytes(self) -> int:
        """The resident memory of the server and of the processes of its models, without pages of files.

        Pages of libraries are read when their code first runs, and dropped when the machine has too little memory.
        """
        found = [self.server.process.pid, *(process.pid for process in self.processes())]
        return sum(map(_anonymous_bytes, found))

    def private_memory_bytes(self) -> int:
        """The private memory of the server and of the processes of its models."""
        found = [psutil.Process(self.server.process.pid), *self.processes()]
        return sum(int(process.memory_full_info().uss) for process in found)


@contextmanager
def framework_server(framework: Framework, mode: str, folder: Path, **variables: str) -> Iterator[FrameworkServer]:
    """A server without models, whose models of this framework will run in ``mode``.

    ``variables`` are added to its environment.
    """
    (folder / "models").mkdir()
    setting = f"{framework.name},execution={mode}"
    arguments = ("--model-repository", folder / "models", "--model-control-mode=explicit", "--backend-config", setting)
    arguments += POLICIES
    environment = {**server_environment(), **framework.variables, **variables}
    with (
        serving(folder / "log", *arguments, env=environment) as server,
        grpc.insecure_channel(server.grpc_url) as channel,
    ):
        yield FrameworkServer(framework, mode, server, folder, channel)


def _anonymous_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("RssAnon:"))


def _message(model: str, inputs: Arrays) -> Any:
    message = service_pb2.ModelInferRequest(model_name=model)
    for name, array in inputs.items():
        dtype = BY_WIRE["BYTES"] if array.dtype == object else BY_NUMPY[array.dtype]
        message.inputs.add(name=name, datatype=dtype.wire, shape=array.shape)
        message.raw_input_contents.append(encode_bytes(array) if dtype.is_bytes else array.tobytes())
    return message


def _outputs(response: Any) -> dict[str, np.ndarray[Any, Any]]:
    found = {}
    for output, raw in zip(response.outputs, response.raw_output_contents, strict=True):
        dtype, shape = BY_WIRE[output.datatype], tuple(output.shape)
        if dtype.is_bytes:
            found[output.name] = decode_bytes(raw, int(np.prod(shape)), output.name).reshape(shape)
        else:
            found[output.name] = np.frombuffer(raw, dtype.numpy).reshape(shape)
    return found


def same(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> bool:
    """Whether outputs are equal bit by bit: infinities, NaN and negative zeros too."""
    return found.keys() >= expected.keys() and all(
        found[name].shape == array.shape
        and found[name].dtype == array.dtype
        and (
            found[name].tolist() == array.tolist()
            if array.dtype == object
            else found[name].tobytes() == array.tobytes()
        )
        for name, array in expected.items()
    )
