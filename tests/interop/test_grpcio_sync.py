"""grpcio's blocking client against the server: an HTTP/2 and gRPC stack that nobody here wrote."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from interop.calls import (
    CALL_S,
    SOON_S,
    channel,
    floats,
    output,
    request_for,
    same,
    status_of,
    stub,
    sum_request,
)
from interop.models import VALUES
from naiad.testing import RunningServer, start_server
from support.served_models import identity, write_model

# Every method

ANSWERS: dict[str, tuple[Any, dict[str, object]]] = {
    "ServerLive": (pb.ServerLiveRequest(), {"live": True}),
    "ServerReady": (pb.ServerReadyRequest(), {"ready": True}),
    "ModelReady": (pb.ModelReadyRequest(name="versions", version="7"), {"ready": True}),
    "ServerMetadata": (pb.ServerMetadataRequest(), {"name": "nymph"}),
    "ModelMetadata": (pb.ModelMetadataRequest(name="versions"), {"name": "versions", "versions": ["1", "7"]}),
}


@pytest.mark.parametrize("method", ANSWERS)
def test_a_method_answers(service: Any, method: str) -> None:
    request, expected = ANSWERS[method]
    answer = getattr(service, method)(request, timeout=CALL_S)
    assert {name: getattr(answer, name) for name in expected} == expected


def test_an_unknown_model_is_not_ready(service: Any) -> None:
    assert not service.ModelReady(pb.ModelReadyRequest(name="nope"), timeout=CALL_S).ready


def test_the_configuration(service: Any) -> None:
    config = service.ModelConfig(pb.ModelConfigRequest(name="sum"), timeout=CALL_S).config
    assert (config.name, config.max_batch_size) == ("sum", 8)
    assert config.dynamic_batching.max_queue_delay_microseconds == 2000
    assert [list(i.dims) for i in config.input] == [[16], [16]]


def test_the_statistics(service: Any) -> None:
    before, after = (statistics(service, "versions", "7") for _ in range(2))
    assert before == after
    request = request_for("versions", np.arange(4, dtype=np.int32), "INT32")
    answer = service.ModelInfer(request, timeout=CALL_S)
    assert answer.model_version == "7"
    now = statistics(service, "versions", "7")
    assert now.inference_count == before.inference_count + 1
    assert now.inference_stats.success.count == before.inference_stats.success.count + 1
    assert {m.version for m in service.ModelStatistics(pb.ModelStatisticsRequest(name="versions")).model_stats} == {
        "1",
        "7",
    }


def statistics(service: Any, model: str, version: str) -> Any:
    request = pb.ModelStatisticsRequest(name=model, version=version)
    (found,) = service.ModelStatistics(request, timeout=CALL_S).model_stats
    return found


def test_the_settings(service: Any) -> None:
    log = service.LogSettings(pb.LogSettingsRequest(), timeout=CALL_S).settings
    assert (log["log_info"].bool_param, log["log_verbose_level"].uint32_param) == (True, 0)
    trace = service.TraceSetting(pb.TraceSettingRequest(), timeout=CALL_S).settings
    assert {name: list(found.value) for name, found in trace.items()} == {
        "trace_level": ["OFF"],
        "trace_rate": ["1000"],
        "trace_count": ["-1"],
        "log_frequency": ["0"],
        "trace_file": [""],
        "trace_mode": ["triton"],
    }


def test_the_repository_index(service: Any, models: Path) -> None:
    answer = service.RepositoryIndex(pb.RepositoryIndexRequest(), timeout=CALL_S)
    assert {m.name for m in answer.models} == {folder.name for folder in models.iterdir()}
    assert {m.state for m in answer.models} == {"READY"}


SHARED_MEMORY_IS_OFF = {
    "SystemSharedMemoryRegister": pb.SystemSharedMemoryRegisterRequest(),
    "SystemSharedMemoryUnregister": pb.SystemSharedMemoryUnregisterRequest(),
    "CudaSharedMemoryRegister": pb.CudaSharedMemoryRegisterRequest(),
    "CudaSharedMemoryUnregister": pb.CudaSharedMemoryUnregisterRequest(),
}


@pytest.mark.parametrize("method", SHARED_MEMORY_IS_OFF)
def test_shared_memory_is_off(service: Any, method: str) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        getattr(service, method)(SHARED_MEMORY_IS_OFF[method], timeout=CALL_S)
    code, text = status_of(failure.value)
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert text == "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."


def test_no_shared_memory_is_registered(service: Any) -> None:
    assert not service.SystemSharedMemoryStatus(pb.SystemSharedMemoryStatusRequest(), timeout=CALL_S).regions
    assert not service.CudaSharedMemoryStatus(pb.CudaSharedMemoryStatusRequest(), timeout=CALL_S).regions


NOT_ALLOWED = {
    "RepositoryModelLoad": pb.RepositoryModelLoadRequest(model_name="sum"),
    "RepositoryModelUnload": pb.RepositoryModelUnloadRequest(model_name="sum"),
}


@pytest.mark.parametrize("method", NOT_ALLOWED)
def test_models_are_not_loaded_without_explicit_control(service: Any, method: str) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        getattr(service, method)(NOT_ALLOWED[method], timeout=CALL_S)
    code, text = status_of(failure.value)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert "not allowed" in text


def test_every_method_of_the_service_was_called() -> None:
    called = {*ANSWERS, *SHARED_MEMORY_IS_OFF, *NOT_ALLOWED, "ModelConfig", "ModelStatistics", "RepositoryIndex"}
    called |= {"LogSettings", "TraceSetting", "SystemSharedMemoryStatus", "CudaSharedMemoryStatus"}
    methods = pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name
    assert called | {"ModelInfer", "ModelStreamInfer"} == set(methods)


@pytest.mark.parametrize("path", ["/inference.GRPCInferenceService/Nope", "/nope.Nope/Nope", "/nope", "//"])
def test_an_unknown_method(server: RunningServer, path: str) -> None:
    with channel(server) as opened, pytest.raises(grpc.RpcError) as failure:
        opened.unary_unary(path)(b"", timeout=CALL_S)
    assert status_of(failure.value) == (grpc.StatusCode.UNIMPLEMENTED, "")


# Inference


@pytest.mark.parametrize("datatype", VALUES)
def test_a_datatype_comes_back_bit_by_bit(service: Any, datatype: str) -> None:
    request = request_for(f"id_{datatype}", VALUES[datatype], datatype, "42")
    answer = service.ModelInfer(request, timeout=CALL_S)
    assert (answer.id, answer.model_name, answer.outputs[0].datatype) == ("42", f"id_{datatype}", datatype)
    assert same(output(answer), VALUES[datatype])


def test_calls_of_one_channel_are_batched_and_get_their_own_answers(server: RunningServer, service: Any) -> None:
    before = server.statistics("sum")
    calls = [service.ModelInfer.future(sum_request(i, 2 * i, request_id=str(i)), timeout=CALL_S) for i in range(400)]
    for i, call in enumerate(calls):
        answer = call.result()
        assert answer.id == str(i)
        assert (output(answer) == 3 * i).all()
        assert (output(answer, 1) == -i).all()
    after = server.statistics("sum")
    assert after["inference_count"] - before["inference_count"] == 400
    assert after["execution_count"] - before["execution_count"] < 400


def test_many_channels(server: RunningServer) -> None:
    def call(number: int) -> bool:
        with channel(server) as opened:
            request = request_for("id_FP32", np.full((1, 8), number, np.float32))
            answers = [stub(opened).ModelInfer(request, timeout=CALL_S) for _ in range(3)]
            return all((output(a) == number).all() for a in answers)

    with ThreadPoolExecutor(32) as threads:
        assert all(threads.map(call, range(128)))


# Metadata


def test_metadata_of_all_kinds(service: Any) -> None:
    metadata = [
        ("plain", "value"),
        ("repeated", "one"),
        ("repeated", "two"),
        ("empty", ""),
        ("long", "x" * 4000),
        ("bytes-bin", bytes(range(256))),
        *((f"name-{i}", str(i)) for i in range(50)),
    ]
    for _ in range(3):
        answer, call = service.ServerLive.with_call(pb.ServerLiveRequest(), timeout=CALL_S, metadata=metadata)
        assert answer.live
        assert call.code() is grpc.StatusCode.OK
        assert not call.trailing_metadata()


def test_metadata_that_never_repeats(service: Any) -> None:
    for i in range(300):
        metadata = [(f"name-{i}", "x" * i), ("request", str(i))]
        assert service.ServerLive(pb.ServerLiveRequest(), timeout=CALL_S, metadata=metadata).live


def test_too_much_metadata_costs_only_its_own_call(service: Any) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        service.ServerLive(pb.ServerLiveRequest(), timeout=CALL_S, metadata=[("long", "x" * 60_000)])
    assert failure.value.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
    assert service.ServerLive(pb.ServerLiveRequest(), timeout=CALL_S, wait_for_ready=True).live


# Errors

TEXTS = ("naïve \u2603 \U0001f30a % %41 \n", "x" * 1000, "\u2603" * 300)


@pytest.mark.parametrize("name", TEXTS, ids=["characters", "1000 letters", "300 snowmen"])
def test_an_error_text_arrives_unchanged(service: Any, name: str) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        service.ModelInfer(floats(name, 1), timeout=CALL_S)
    expected = f"Request for unknown model: '{name}' is not found"
    assert status_of(failure.value) == (grpc.StatusCode.NOT_FOUND, expected)


@pytest.mark.parametrize("letter", ["x", "\u2603"])
def test_a_huge_error_text_is_cut(service: Any, letter: str) -> None:
    with pytest.raises(grpc.RpcError) as failure:
        service.ModelInfer(floats(letter * 200_000, 1), timeout=CALL_S)
    code, text = status_of(failure.value)
    assert code is grpc.StatusCode.NOT_FOUND
    assert text.startswith(f"Request for unknown model: '{letter}{letter}")
    assert "..." in text
    assert text.endswith(f"{letter}' is not found")
    assert len(text) > 400


def test_a_model_that_fails(service: Any) -> None:
    request = request_for("look_up", np.array([[99]], np.int64), "INT64")
    request.inputs[0].name = "index"
    with pytest.raises(grpc.RpcError) as failure:
        service.ModelInfer(request, timeout=CALL_S)
    code, text = status_of(failure.value)
    assert code is grpc.StatusCode.INTERNAL
    assert "99" in text


def test_a_message_that_is_none(server: RunningServer) -> None:
    with channel(server) as opened:
        for method in ("ModelInfer", "ModelMetadata"):
            call = opened.unary_unary(f"/inference.GRPCInferenceService/{method}")
            with pytest.raises(grpc.RpcError) as failure:
                call(b"\xff\xff\xff", timeout=CALL_S)
            assert status_of(failure.value) == (grpc.StatusCode.INTERNAL, "Unable to parse request")


def test_no_message_and_two_messages(server: RunningServer) -> None:
    live = "/inference.GRPCInferenceService/ServerLive"
    with channel(server) as opened:
        call = opened.stream_unary(live)
        with pytest.raises(grpc.RpcError) as failure:
            call(iter(()), timeout=CALL_S)
        assert failure.value.code() is grpc.StatusCode.INTERNAL
        assert opened.unary_unary(live)(b"", timeout=CALL_S)


# Streams


def stream_requests(count: int) -> list[Any]:
    return [sum_request(i, i, "sum_stream", str(i)) for i in range(count)]


def test_answers_of_a_stream_come_in_the_order_of_the_requests(service: Any) -> None:
    answers = list(service.ModelStreamInfer(iter(stream_requests(500)), timeout=CALL_S))
    assert [a.infer_response.id for a in answers] == [str(i) for i in range(500)]
    assert {a.error_message for a in answers} == {""}
    assert all(a.infer_response.parameters["triton_final_response"].bool_param for a in answers)
    assert [int(output(a.infer_response)[0, 0]) for a in answers] == [2 * i for i in range(500)]


def test_a_stream_without_requests(service: Any) -> None:
    assert list(service.ModelStreamInfer(iter(()), timeout=CALL_S)) == []


def test_a_request_that_fails_does_not_end_the_stream(service: Any) -> None:
    requests = [sum_request(1, 1), floats("nope", 1, request_id="bad"), sum_request(2, 2)]
    first, second, third = service.ModelStreamInfer(iter(requests), timeout=CALL_S)
    assert second.error_message == "Request for unknown model: 'nope' is not found"
    assert second.infer_response.id == "bad"
    assert [int(output(a.infer_response)[0, 0]) for a in (first, third)] == [2, 4]


def test_metadata_makes_the_first_failure_end_the_stream(service: Any) -> None:
    requests = [sum_request(1, 1), floats("nope", 1), sum_request(2, 2)]
    answers = service.ModelStreamInfer(iter(requests), timeout=CALL_S, metadata=[("triton_grpc_error", "true")])
    assert (output(next(answers).infer_response) == 2).all()
    with pytest.raises(grpc.RpcError) as failure:
        next(answers)
    expected = "Request for unknown model: 'nope' is not found"
    assert status_of(failure.value) == (grpc.StatusCode.NOT_FOUND, expected)


def test_a_stream_whose_answers_nobody_takes(server: RunningServer, service: Any) -> None:
    """It is held back, and others are served meanwhile; then it gets everything."""
    values = np.zeros(250_000, np.uint8)
    sent = []

    def requests() -> Iterator[Any]:
        for i in range(400):
            sent.append(i)
            yield request_for("large", values, "UINT8", str(i))

    call = service.ModelStreamInfer(requests(), timeout=CALL_S)
    with channel(server) as other:
        for _ in range(20):
            assert (output(stub(other).ModelInfer(sum_request(1, 2), timeout=CALL_S)) == 3).all()
    assert len(sent) < 400
    answers = list(call)
    assert [a.infer_response.id for a in answers] == [str(i) for i in range(400)]
    assert {len(a.infer_response.raw_output_contents[0]) for a in answers} == {values.size}


# Compression

COMPRESSIONS = (grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate)


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=lambda c: c.name)
@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_compressed_requests(service: Any, compression: grpc.Compression, size: int) -> None:
    values = np.arange(size, dtype=np.uint32).view(np.uint8)
    request = request_for("large", values, "UINT8")
    answer = service.ModelInfer(request, timeout=CALL_S, compression=compression)
    assert same(output(answer), values)
    answers = list(service.ModelStreamInfer(iter([request] * 3), timeout=CALL_S, compression=compression))
    assert all(same(output(a.infer_response), values) for a in answers)
    assert len(answers) == 3


@pytest.mark.parametrize("compression", COMPRESSIONS, ids=lambda c: c.name)
@pytest.mark.parametrize("size", [1, 1000, 300_000])
def test_compressed_both_ways(compressing: RunningServer, compression: grpc.Compression, size: int) -> None:
    values = np.arange(size, dtype=np.uint32).view(np.uint8)
    with channel(compressing, compression=compression) as opened:
        request = request_for("large", values, "UINT8")
        assert same(output(stub(opened).ModelInfer(request, timeout=CALL_S)), values)
        answers = list(stub(opened).ModelStreamInfer(iter([request] * 3), timeout=CALL_S))
        assert all(same(output(a.infer_response), values) for a in answers)
        assert len(answers) == 3
        assert stub(opened).ServerLive(pb.ServerLiveRequest(), timeout=CALL_S).live


@pytest.mark.parametrize(("accepted", "bits"), [("identity", 0b001), ("deflate", 0b011), ("gzip", 0b101)])
def test_answers_only_in_what_the_client_takes(compressing: RunningServer, accepted: str, bits: int) -> None:
    values = np.zeros(1_000_000, np.uint8)
    with channel(compressing, ("grpc.compression_enabled_algorithms_bitset", bits)) as opened:
        answer = stub(opened).ModelInfer(request_for("large", values, "UINT8"), timeout=CALL_S)
        assert same(output(answer), values)


# Connecting


@pytest.mark.slow
def test_wait_for_ready_outlasts_the_start(transport: str, tmp_path: Path) -> None:
    write_model(tmp_path / "models", "same", identity("TYPE_FP32", "-1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    options = (("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 100))
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as opened:
        with pytest.raises(grpc.RpcError) as failure:
            stub(opened).ServerLive(pb.ServerLiveRequest(), timeout=SOON_S)
        assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
        calls = [
            stub(opened).ServerLive.future(pb.ServerLiveRequest(), timeout=CALL_S, wait_for_ready=True)
            for _ in range(10)
        ]
        server = start_server(
            tmp_path / "log",
            *(tmp_path / "models", "--grpc-transport", transport, "--grpc-address", "127.0.0.1", "--grpc-port", port),
            *("--allow-http=false", "--allow-metrics=false"),
            ports=False,
        )
        try:
            assert all(call.result().live for call in calls)
            server.wait_for(" is ready: ")
            assert output(stub(opened).ModelInfer(floats("same", 3), timeout=CALL_S)) == [3]
            assert server.stop() == 0
        finally:
            server.kill()
