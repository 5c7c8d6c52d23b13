"""The lower bound of a server on grpcio: the identity model served by grpcio with as little code as possible.

``python -m benchmarks.grpc_peers aio`` and ``... sync`` listen on a port of the loopback and print it. Protobuf parses
requests and builds answers, tensors become numpy arrays, and nothing is checked.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent import futures
from typing import Any

import grpc
import numpy as np

from naiad.config.messages import message_class

from .infer import NUMPY_TYPES

THREADS = 8
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
ModelInferRequest = message_class("ModelInferRequest")
ModelInferResponse = message_class("ModelInferResponse")


def identity(request: Any) -> Any:
    """The ``ModelInferResponse`` with the request's first input as OUTPUT0."""
    (tensor,) = request.inputs
    array = np.frombuffer(request.raw_input_contents[0], NUMPY_TYPES[tensor.datatype]).reshape(tuple(tensor.shape))
    response = ModelInferResponse(model_name=request.model_name, model_version="1", id=request.id)
    output = response.outputs.add(name="OUTPUT0", datatype=tensor.datatype)
    output.shape.extend(array.shape)
    response.raw_output_contents.append(array.tobytes())
    return response


def _answer(request: Any, context: grpc.ServicerContext) -> Any:
    return identity(request)


async def _answer_async(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
    return identity(request)


def _service(behaviour: Any) -> grpc.GenericRpcHandler:
    method = grpc.unary_unary_rpc_method_handler(
        behaviour, ModelInferRequest.FromString, ModelInferResponse.SerializeToString
    )
    return grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": method})


def serve_sync() -> None:
    """Serve with a pool of threads until the process is ended."""
    server = grpc.server(futures.ThreadPoolExecutor(THREADS), options=OPTIONS)
    server.add_generic_rpc_handlers((_service(_answer),))
    _announce(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


async def serve_aio() -> None:
    """Serve with grpc.aio until the process is ended."""
    server = grpc.aio.server(options=OPTIONS)
    server.add_generic_rpc_handlers((_service(_answer_async),))
    _announce(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    await server.wait_for_termination()


def _announce(port: int) -> None:
    print(f"Started GRPCInferenceService at 127.0.0.1:{port}", flush=True)


def main() -> None:
    """aio or sync."""
    match sys.argv[1:]:
        case ["aio"]:
            asyncio.run(serve_aio())
        case ["sync"]:
            serve_sync()
        case other:
            raise SystemExit(f"expected aio or sync, found {other}")


if __name__ == "__main__":
    main()
