"""Server reflection, asked by hand and by a client that nobody here wrote."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from naiad.config.messages import message_class, pool
from naiad.frontends.grpc.rpc.call import Methods, Receiver, Streaming
from naiad.frontends.grpc.v2.reflection import reflection_methods
from naiad.frontends.grpc.v2.replies import protobuf_method
from naiad.wire.grpc.paths import HEALTH, INFERENCE, path
from naiad.wire.grpc.status import Status
from support.event_loops import run
from support.grpc_calls import RecordedCall
from support.grpc_transports import TRANSPORTS, carried

VERSIONS = ("v1", "v1alpha")
LISTED = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
    "inference.GRPCInferenceService",
]


def open_call(version: str, call: RecordedCall) -> Receiver:
    method = reflection_methods((INFERENCE, HEALTH))[
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    ]
    assert isinstance(method, Streaming)
    return method.open(call)


def ask(version: str, **question: Any) -> Any:
    """The answer to one question."""
    call = RecordedCall()
    receiver = open_call(version, call)
    request = message_class("ServerReflectionRequest", f"grpc.reflection.{version}")(host="here", **question)
    receiver.receive(request.SerializeToString())
    receiver.end()
    assert call.status == (0, "")
    (raw,) = call.messages
    answer = message_class("ServerReflectionResponse", f"grpc.reflection.{version}").FromString(raw)
    assert (answer.valid_host, answer.original_request) == ("here", request)
    return answer


def files(answer: Any) -> list[str]:
    """Names of the files in an answer, each parsed."""
    raw = answer.file_descriptor_response.file_descriptor_proto
    return [descriptor_pb2.FileDescriptorProto.FromString(r).name for r in raw]


@pytest.mark.parametrize("version", VERSIONS)
def test_services_are_listed(version: str) -> None:
    found = ask(version, list_services="*").list_services_response.service
    assert [s.name for s in found] == LISTED


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"file_by_filename": "grpc_service.proto"}, ["grpc_service.proto", "model_config.proto"]),
        ({"file_by_filename": "health.proto"}, ["health.proto"]),
        ({"file_containing_symbol": INFERENCE}, ["grpc_service.proto", "model_config.proto"]),
        ({"file_containing_symbol": f"{INFERENCE}.ModelInfer"}, ["grpc_service.proto", "model_config.proto"]),
        ({"file_containing_symbol": "inference.ModelConfig"}, ["model_config.proto"]),
        ({"file_containing_symbol": "inference.ModelInferRequest.InferInputTensor"}, None),
        ({"file_containing_symbol": "inference.DataType"}, ["model_config.proto"]),
        ({"file_containing_symbol": "grpc.reflection.v1.ServerReflection"}, ["reflection_v1.proto"]),
    ],
)
def test_files_come_with_what_they_need(version: str, question: dict[str, str], expected: list[str] | None) -> None:
    assert files(ask(version, **question)) == (expected or ["grpc_service.proto", "model_config.proto"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("question", "code", "text"),
    [
        ({"file_by_filename": "nope.proto"}, Status.NOT_FOUND, "File not found: nope.proto"),
        ({"file_containing_symbol": "no.Such"}, Status.NOT_FOUND, "Symbol not found: no.Such"),
        ({"file_containing_symbol": ""}, Status.NOT_FOUND, "Symbol not found: "),
        ({"all_extension_numbers_of_type": "no.Such"}, Status.NOT_FOUND, "Type not found: no.Such"),
        (
            {"file_containing_extension": {"containing_type": "inference.ModelConfig", "extension_number": 7}},
            Status.NOT_FOUND,
            "Extension not found: inference.ModelConfig has no extension 7",
        ),
        ({"file_containing_extension": {}}, Status.NOT_FOUND, "Type not found: "),
        ({}, Status.INVALID_ARGUMENT, "the kind of the reflection request is unknown"),
    ],
)
def test_errors_are_answers(version: str, question: dict[str, Any], code: int, text: str) -> None:
    found = ask(version, **question).error_response
    assert found.error_code == code
    assert text in found.error_message


@pytest.mark.parametrize("version", VERSIONS)
def test_a_type_without_extensions(version: str) -> None:
    found = ask(version, all_extension_numbers_of_type="inference.ModelConfig").all_extension_numbers_response
    assert (found.base_type_name, list(found.extension_number)) == ("inference.ModelConfig", [])


def test_questions_are_answered_in_order_and_bad_bytes_end_the_call() -> None:
    call = RecordedCall()
    receiver = open_call("v1", call)
    question = message_class("ServerReflectionRequest", "grpc.reflection.v1")
    for name in ("one", "two"):
        receiver.receive(question(file_by_filename=name).SerializeToString())
    receiver.receive(b"\xff\xff")
    answers = [message_class("ServerReflectionResponse", "grpc.reflection.v1").FromString(m) for m in call.messages]
    assert [a.original_request.file_by_filename for a in answers] == ["one", "two"]
    assert call.status == (Status.INTERNAL, "Unable to parse request")


def test_a_caller_who_takes_no_answers_is_not_read_from() -> None:
    call = RecordedCall()
    receiver = open_call("v1", call)
    call.congested = True
    receiver.receive(
        message_class("ServerReflectionRequest", "grpc.reflection.v1")(list_services="").SerializeToString()
    )
    assert call.paused
    call.drain()
    assert not call.paused
    call.give_up()


def methods() -> Methods:
    """Reflection, and a method that can be called with what reflection gives."""

    def answer(request: Any) -> Any:
        return message_class("ModelReadyResponse")(ready=request.name == "m" and request.version == "7")

    return {
        **reflection_methods((INFERENCE, HEALTH)),
        path(INFERENCE, "ModelReady"): protobuf_method("ModelReadyRequest", answer),
    }


def call_as_a_stranger(address: str) -> None:
    """Learn everything from the server, as a tool without any .proto file does, and call a method."""
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert sorted(database.get_services()) == LISTED
        learned = descriptor_pool.DescriptorPool(database)
        service = learned.FindServiceByName(INFERENCE)
        assert {m.name for m in service.methods} == {m.name for m in pool().FindServiceByName(INFERENCE).methods}
        method = service.methods_by_name["ModelReady"]
        request = message_factory.GetMessageClass(method.input_type)(name="m", version="7")
        respond = message_factory.GetMessageClass(method.output_type)
        ask_ready = channel.unary_unary(f"/{service.full_name}/{method.name}", response_deserializer=respond.FromString)
        assert ask_ready(request.SerializeToString(), timeout=10).ready
        config = learned.FindMessageTypeByName("inference.ModelConfig")
        assert len(config.fields) == len(message_class("ModelConfig").DESCRIPTOR.fields)


@pytest.mark.parametrize("kind", TRANSPORTS)
def test_an_independent_client_learns_the_service_and_calls_it(kind: str) -> None:
    async def test() -> None:
        async with carried(kind, methods()) as transport:
            await asyncio.to_thread(call_as_a_stranger, transport.address)

    run(test())
