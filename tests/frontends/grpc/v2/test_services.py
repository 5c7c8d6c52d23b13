"""The whole table of methods on an engine: descriptions, the repository index, what is not served yet."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from google.protobuf import json_format

from naiad.config.export import config_json
from naiad.config.messages import message_class, pool
from naiad.frontends.grpc.rpc.call import Methods, Streaming, Unary
from naiad.frontends.grpc.v2.replies import MAX_REQUEST_BYTES
from naiad.frontends.grpc.v2.services import make_methods
from naiad.shared_memory.registry import DISABLED
from naiad.testing import write_model
from naiad.version import __version__
from naiad.wire.grpc.compression import MessageTooLargeError
from naiad.wire.grpc.status import Status
from support import event_loops
from support.grpc_calls import RecordedCall
from support.http_application import House, identity_config, serving, write_look_up

SERVICE = "/inference.GRPCInferenceService/"
CONFIG = identity_config(("0", "TYPE_FP32", "[ -1, 4 ]"), ("1", "TYPE_STRING", "[ 1 ]"), more="max_batch_size: 4")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_model(tmp_path, "many", CONFIG + "version_policy { all { } }", versions=(1, 20, 3))
    write_model(tmp_path, "broken", 'backend: "nonesuch"')
    write_look_up(tmp_path)
    return tmp_path


Scenario = Callable[["Served"], Coroutine[Any, Any, None]]


class Served:
    """The methods of a server, called by name with fields of the request."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.methods: Methods = make_methods(house.engine)

    def call(self, method: str, **fields: Any) -> RecordedCall:
        """Start a call; it need not have ended."""
        return self.call_raw(method, message_class(f"{method}Request")(**fields).SerializeToString())

    def call_raw(self, method: str, raw: bytes) -> RecordedCall:
        found = self.methods[SERVICE + method]
        assert isinstance(found, Unary)
        call = RecordedCall()
        found.handle(call, raw)
        return call

    async def ask(self, method: str, **fields: Any) -> dict[str, Any]:
        """The answer's message as a dict, fields without presence included."""
        answer = await self.call(method, **fields).answer(message_class(f"{method}Response"))
        found = json_format.MessageToDict(
            answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return dict(found)


def play(repository: Path, scenario: Scenario, strict_readiness: bool = True) -> None:
    async def test(house: House) -> None:
        await scenario(Served(house))

    event_loops.play(serving(repository, strict_readiness), test)


def test_every_method_of_every_service_is_in_the_table(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        expected: dict[str, type] = {}
        for package, name in (
            ("inference", "GRPCInferenceService"),
            ("grpc.health.v1", "Health"),
            ("grpc.reflection.v1", "ServerReflection"),
            ("grpc.reflection.v1alpha", "ServerReflection"),
        ):
            for method in pool().FindServiceByName(f"{package}.{name}").methods:
                kind = Streaming if method.client_streaming else Unary
                expected[f"/{package}.{name}/{method.name}"] = kind
        assert {path: type(method) for path, method in served.methods.items()} == expected
        compressed = {path for path, method in served.methods.items() if method.compressed}
        assert compressed == {SERVICE + "ModelInfer", SERVICE + "ModelStreamInfer"}

    play(repository, scenario)


def test_live_and_ready(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        assert await served.ask("ServerLive") == {"live": True}
        assert await served.ask("ServerReady") == {"ready": True}
        served.house.engine.exiting = True
        assert await served.ask("ServerLive") == {"live": False}
        assert await served.ask("ServerReady") == {"ready": False}

    play(repository, scenario, strict_readiness=False)


def test_strict_readiness(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        assert await served.ask("ServerReady") == {"ready": False}

    play(repository, scenario)


@pytest.mark.parametrize(
    ("name", "version", "ready"),
    [
        ("many", "", True),
        ("many", "3", True),
        ("many", "4", False),
        ("broken", "", False),
        ("nope", "", False),
        ("", "", False),
    ],
)
def test_model_ready(repository: Path, name: str, version: str, ready: bool) -> None:
    async def scenario(served: Served) -> None:
        assert await served.ask("ModelReady", name=name, version=version) == {"ready": ready}

    play(repository, scenario)


def test_server_metadata(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        found = await served.ask("ServerMetadata")
        assert (found["name"], found["version"]) == ("naiad-test", __version__)
        assert "statistics" in found["extensions"]

    play(repository, scenario)


@pytest.mark.parametrize("version", ["", "3"])
def test_model_metadata(repository: Path, version: str) -> None:
    async def scenario(served: Served) -> None:
        floats = {"datatype": "FP32", "shape": ["-1", "-1", "4"]}
        texts = {"datatype": "BYTES", "shape": ["-1", "1"]}
        assert await served.ask("ModelMetadata", name="many", version=version) == {
            "name": "many",
            "versions": [version] if version else ["1", "3", "20"],
            "platform": "identity",
            "inputs": [{"name": "INPUT0", **floats}, {"name": "INPUT1", **texts}],
            "outputs": [{"name": "OUTPUT0", **floats}, {"name": "OUTPUT1", **texts}],
        }

    play(repository, scenario)


def test_the_configuration_is_the_one_that_http_shows(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        for name in ("many", "look_up"):
            call = served.call("ModelConfig", name=name)
            answer = await call.answer(message_class("ModelConfigResponse"))
            assert answer.config.name == name
            shown = orjson.loads(config_json(answer.config))
            assert shown == orjson.loads(config_json(served.house.engine.model_config(name, "")))

    play(repository, scenario)


def test_statistics(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        index = {"name": "index", "datatype": "INT64", "shape": [1, 1]}
        given = {"model_name": "look_up", "inputs": [index], "raw_input_contents": [np.int64(2).tobytes()]}
        answer = await served.call("ModelInfer", **given).answer(message_class("ModelInferResponse"))
        assert list(answer.raw_output_contents) == [np.float32(12).tobytes()]
        (found,) = (await served.ask("ModelStatistics", name="look_up"))["model_stats"]
        assert (found["version"], found["inference_count"], found["execution_count"]) == ("1", "1", "1")
        assert int(found["last_inference"]) > 0
        assert found["inference_stats"]["success"]["count"] == "1"
        assert int(found["inference_stats"]["success"]["ns"]) > 0
        assert found["inference_stats"]["fail"] == {"count": "0", "ns": "0"}
        (batch,) = found["batch_stats"]
        assert (batch["batch_size"], batch["compute_infer"]["count"]) == ("1", "1")
        everything = (await served.ask("ModelStatistics"))["model_stats"]
        assert [(s["name"], s["version"]) for s in everything] == [
            ("look_up", "1"),
            ("many", "1"),
            ("many", "3"),
            ("many", "20"),
        ]
        (one,) = (await served.ask("ModelStatistics", name="many", version="3"))["model_stats"]
        assert one["version"] == "3"

    play(repository, scenario)


def test_the_repository_index(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        ready = [("look_up", "1"), ("many", "1"), ("many", "3"), ("many", "20")]
        found = (await served.ask("RepositoryIndex"))["models"]
        assert [(m["name"], m["version"]) for m in found if m["state"] == "READY"] == ready
        (broken,) = (m for m in found if m["name"] == "broken")
        assert broken["state"] == "UNAVAILABLE"
        assert "nonesuch" in broken["reason"]
        found = (await served.ask("RepositoryIndex", ready=True))["models"]
        assert [(m["name"], m["version"]) for m in found] == ready

    play(repository, scenario)


@pytest.mark.parametrize(
    ("method", "fields", "code", "text"),
    [
        ("ModelMetadata", {"name": "nope"}, Status.NOT_FOUND, "Request for unknown model: 'nope' is not found"),
        ("ModelConfig", {"name": ""}, Status.NOT_FOUND, "Request for unknown model: '' is not found"),
        (
            "ModelConfig",
            {"name": "many", "version": "7"},
            Status.NOT_FOUND,
            "Request for unknown model: 'many' version 7 is not found",
        ),
        (
            "ModelReady",
            {"name": "many", "version": "x"},
            Status.INVALID_ARGUMENT,
            "failed to get model version from specified version string 'x' (details: stol), version should be an "
            "integral value > 0",
        ),
        ("ModelStatistics", {"name": "nope"}, Status.INVALID_ARGUMENT, "requested model 'nope' is not available"),
        (
            "ModelStatistics",
            {"name": "many", "version": "7"},
            Status.INVALID_ARGUMENT,
            "requested model version is not available for model 'many'",
        ),
        (
            "RepositoryIndex",
            {"repository_name": "here"},
            Status.UNIMPLEMENTED,
            "'repository_name' specification is not supported",
        ),
    ],
)
def test_errors(repository: Path, method: str, fields: dict[str, str], code: int, text: str) -> None:
    async def scenario(served: Served) -> None:
        call = served.call(method, **fields)
        assert (call.status, call.messages) == ((code, text), [])

    play(repository, scenario)


def test_bytes_that_are_no_request(repository: Path) -> None:
    async def scenario(served: Served) -> None:
        for path, method in served.methods.items():
            if not path.startswith(SERVICE) or isinstance(method, Streaming):
                continue
            name = path.removeprefix(SERVICE)
            call = served.call_raw(name, b"\xff\xff\xff")
            assert (call.status, call.messages) == ((Status.INTERNAL, "Unable to parse request"), []), name

    play(repository, scenario)


@pytest.mark.parametrize("kind", ["System", "Cuda"])
def test_shared_memory_is_off(repository: Path, kind: str) -> None:
    async def scenario(served: Served) -> None:
        for action in ("Register", "Unregister"):
            call = served.call(f"{kind}SharedMemory{action}", name="r")
            assert (call.status, call.messages) == ((Status.UNIMPLEMENTED, DISABLED), [])
        call = served.call(f"{kind}SharedMemoryStatus")
        assert (call.status, len(call.messages)) == ((Status.OK, ""), 1)

    play(repository, scenario)


def test_a_question_about_the_server_is_short(repository: Path) -> None:
    """Protobuf copies a message as a whole, on the loop; those with tensors or files alone may be large."""

    async def scenario(served: Served) -> None:
        unary = {name: method for name, method in served.methods.items() if isinstance(method, Unary)}
        large = {SERVICE + "ModelInfer", SERVICE + "RepositoryModelLoad"}
        assert unary.keys() > large
        for name in unary.keys() - large:
            method = unary[name]
            assert method.check_room is not None
            method.check_room(MAX_REQUEST_BYTES)
            with pytest.raises(MessageTooLargeError):
                method.check_room(MAX_REQUEST_BYTES + 1)
            call = RecordedCall()
            # A message that was compressed, or comes over grpcio, is here as a whole.
            method.handle(call, b"\x7a\x80\x80\x40" + bytes(1 << 20))
            assert (call.code, str(MAX_REQUEST_BYTES) in call.text) == (Status.RESOURCE_EXHAUSTED, True), name

    play(repository, scenario)
