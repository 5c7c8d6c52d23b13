"""Requests over gRPC whose inputs lie partly in regions and partly in the message, with too many or too few of them.

Every expectation is what the reference answered to the same message, texts included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from naiad.testing import RunningServer, serving
from support.grpc_peers import CALL_S, calling
from support.served_models import SUM_AND_DIFFERENCE, write_model
from support.served_transports import TRANSPORTS
from support.shared_regions import memory

REGION = "rows"
FIRST, SECOND, OTHER = np.arange(16, dtype=np.int32), np.ones(16, np.int32), 2 * np.arange(16, dtype=np.int32)
RAW = OTHER.tobytes()


class Place(NamedTuple):
    """Where an input is: at an offset of the region, in its typed contents, in both, or in a raw tensor."""

    offset: int | None = None
    contents: bool = False


LEFT, RIGHT, MESSAGE, TYPED = Place(0), Place(64), Place(), Place(contents=True)
MISSING = "unable to find data for input tensor 'INPUT{}' for model 'simple' in request."
BOTH = "contents field must not be specified when using raw_input_contents for 'INPUT{}' for model 'simple'"
TWICE = "unexpected 'content' provided when using shared memory for input tensor 'INPUT0' for model 'simple'"

SERVED: dict[str, tuple[Place, Place, Sequence[bytes], np.ndarray, np.ndarray]] = {
    "both in the region": (LEFT, RIGHT, [], FIRST, SECOND),
    "and a raw tensor that nobody needs": (LEFT, RIGHT, [RAW], FIRST, SECOND),
    "and three of any size": (LEFT, RIGHT, [RAW, b"x", b""], FIRST, SECOND),
    "the first in the region": (LEFT, MESSAGE, [RAW], FIRST, OTHER),
    "the first in the region, one too many": (LEFT, MESSAGE, [RAW, RAW], FIRST, OTHER),
    "the second in the region": (MESSAGE, RIGHT, [RAW], OTHER, SECOND),
    "the second in the region, one too many": (MESSAGE, RIGHT, [RAW, b"zz"], OTHER, SECOND),
    "none in the region, one too many": (MESSAGE, MESSAGE, [RAW, RAW, RAW], OTHER, OTHER),
    "the other one typed": (LEFT, TYPED, [], FIRST, SECOND),
}
REFUSED: dict[str, tuple[Place, Place, Sequence[bytes], str]] = {
    "none at all": (MESSAGE, MESSAGE, [], MISSING.format(0)),
    "one of two": (MESSAGE, MESSAGE, [RAW], MISSING.format(1)),
    "none for the second": (LEFT, MESSAGE, [], MISSING.format(1)),
    "typed and in the region": (Place(0, contents=True), RIGHT, [], TWICE),
    "typed beside a raw tensor": (LEFT, TYPED, [RAW], BOTH.format(1)),
    "both typed and a raw tensor": (TYPED, TYPED, [RAW], BOTH.format(0)),
    "the first typed, the second raw": (TYPED, MESSAGE, [RAW], BOTH.format(0)),
}


@pytest.fixture(scope="module", params=TRANSPORTS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder = tmp_path_factory.mktemp("raws")
    write_model(folder / "models", "simple", "max_batch_size: 8", graph=SUM_AND_DIFFERENCE)
    options = ("--allow-client-shm=true", "--grpc-transport", request.param)
    with serving(folder / "log", folder / "models", *options) as running, memory(256) as region:
        region.put(FIRST)
        region.put(SECOND, 64)
        with calling(running.grpc_url) as client:
            client.register_system_shared_memory(REGION, region.key, region.size)
        yield running
        assert "Traceback" not in running.log


def message(first: Place, second: Place, raws: Sequence[bytes]) -> Any:
    request = service_pb2.ModelInferRequest(model_name="simple", raw_input_contents=raws)
    for number, (offset, is_typed) in enumerate((first, second)):
        given = request.inputs.add(name=f"INPUT{number}", datatype="INT32", shape=[1, 16])
        if offset is not None:
            given.parameters["shared_memory_region"].string_param = REGION
            given.parameters["shared_memory_offset"].int64_param = offset
            given.parameters["shared_memory_byte_size"].int64_param = 64
        if is_typed:
            given.contents.int_contents.extend((FIRST, SECOND)[number].tolist())
    return request


# Each is sent twice: the second time it may be known by its form.


@pytest.mark.parametrize("case", SERVED)
def test_served(server: RunningServer, case: str) -> None:
    first, second, raws, a, b = SERVED[case]
    with grpc.insecure_channel(server.grpc_url) as opened:
        ask = service_pb2_grpc.GRPCInferenceServiceStub(opened).ModelInfer
        for _ in range(2):
            answer = ask(message(first, second, raws), timeout=CALL_S)
            assert [np.frombuffer(raw, np.int32).tolist() for raw in answer.raw_output_contents] == [
                (a + b).tolist(),
                (a - b).tolist(),
            ]


@pytest.mark.parametrize("case", REFUSED)
def test_refused(server: RunningServer, case: str) -> None:
    first, second, raws, text = REFUSED[case]
    with grpc.insecure_channel(server.grpc_url) as opened:
        ask = service_pb2_grpc.GRPCInferenceServiceStub(opened).ModelInfer
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as caught:
                ask(message(first, second, raws), timeout=CALL_S)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert caught.value.details() == text
