"""Functions of PyTriton programs, served over real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio

import naiad
from naiad.errors import OptionError
from naiad.pytriton.client import (
    AsyncioDecoupledModelClient,
    AsyncioModelClient,
    DecoupledModelClient,
    FuturesModelClient,
    ModelClient,
)
from naiad.pytriton.client.asyncio_utils import asyncio_get_model_config, asyncio_wait_for_server_ready
from naiad.pytriton.client.auth import create_auth_headers
from naiad.pytriton.client.exceptions import (
    PyTritonClientClosedError,
    PyTritonClientInferenceServerError,
    PyTritonClientModelDoesntSupportBatchingError,
    PyTritonClientTimeoutError,
    PyTritonClientValueError,
)
from naiad.pytriton.client.utils import (
    ModelState,
    create_client_from_url,
    get_model_config,
    get_model_state,
    wait_for_model_ready,
    wait_for_server_ready,
)
from naiad.pytriton.decorators import batch, fill_optionals, first_value, sample, triton_context
from naiad.pytriton.exceptions import (
    PyTritonInvalidOperationError,
    PyTritonUnrecoverableError,
    PyTritonValidationError,
)
from naiad.pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from naiad.pytriton.model_config.common import ModelWarmup, WarmupInput
from naiad.pytriton.proxy.types import Request
from naiad.pytriton.triton import RemoteTriton, Triton, TritonConfig, TritonSecurityConfig
from naiad.testing.waiting import wait_until
from support.document_blocks import free_ports

Array = np.ndarray[Any, Any]
Outputs = dict[str, Array]

LOCAL = TritonConfig(http_address="127.0.0.1", http_port=0, grpc_address="127.0.0.1", grpc_port=0, allow_metrics=False)
FORWARDING = replace(LOCAL, http_header_forward_pattern="x-.*", grpc_header_forward_pattern="x-.*")
ROWS = np.array([[1], [2]], np.float32)
ONE = np.array([3], np.float32)


def numbers(name: str | None = None, optional: bool = False) -> Tensor:
    """A vector of FP32."""
    return Tensor(name=name, dtype=np.float32, shape=(-1,), optional=optional)


class Calls:
    """What the functions of the server saw."""

    warmed: ClassVar[list[tuple[int, ...]]] = []
    release = threading.Event()


@batch
def add_sub(**inputs: Array) -> Outputs:
    a, b = inputs.values()
    return {"add": a + b, "sub": a - b}


@fill_optionals(t=np.array([2], np.float32))
@batch
@first_value("w")
def weighted(a: Array, t: Array, w: float = 1.0) -> list[Array]:
    return [a * w + t]


@sample
def texts(text: Array) -> Outputs:
    return {"upper": np.char.upper(text.astype(np.bytes_))}


def scaled(requests: list[Request]) -> list[Outputs]:
    for request in requests:
        # Functions may write to what they get.
        request["x"] *= int((request.parameters or {})["factor"])
    return [{"y": request["x"]} for request in requests]


def caller_of(requests: list[Request]) -> list[Outputs]:
    return [{"y": np.array([[float((request.parameters or {})["x-caller"])]], np.float32)} for request in requests]


def from_parameters(requests: list[Request]) -> list[Outputs]:
    return [{"y": np.array([[float((request.parameters or {})["value"])]], np.float32)} for request in requests]


def fails(requests: list[Request]) -> list[Outputs]:
    raise ValueError("the kettle is empty")


def in_doubles(requests: list[Request]) -> list[Outputs]:
    return [{"y": request["x"].astype(np.float64)} for request in requests]


def one_row_less(requests: list[Request]) -> list[Outputs]:
    return [{"y": request["x"][1:]} for request in requests]


def stuck(requests: list[Request]) -> list[Outputs]:
    Calls.release.wait(30)
    return [{"y": request["x"]} for request in requests]


async def sleeps(requests: list[Request]) -> list[Outputs]:
    await asyncio.sleep(30)
    return [{"y": request["x"]} for request in requests]


@batch
def counts(x: Array) -> Iterator[Outputs]:
    for factor in range(3):
        yield {"y": x * factor}


@batch
async def counts_later(x: Array) -> AsyncIterator[Outputs]:
    for factor in range(3):
        await asyncio.sleep(0)
        yield {"y": x * factor}


def breaks_off(requests: list[Request]) -> Iterator[list[Outputs]]:
    yield [{"y": request["x"]} for request in requests]
    raise ValueError("no second one")


def twice(requests: list[Request]) -> Iterator[list[Outputs]]:
    for _ in range(2):
        yield [{"y": request["x"]} for request in requests]


def nothing(requests: list[Request]) -> list[Outputs]:
    return [{} for _ in requests]


@batch
def warmed(x: Array) -> Outputs:
    Calls.warmed.append(x.shape)
    return {"y": x}


@triton_context
@batch
def context_of(triton_context: Any, x: Array) -> Outputs:
    # Looked up by name: the decorated function is what was bound.
    config = triton_context.model_configs[context_of]
    return {"y": x * config.max_batch_size}


class Model:
    """Functions that are methods."""

    factor = 5

    @batch
    def infer(self, x: Array) -> Outputs:
        return {"y": x * self.factor}


def bind_all(triton: Triton) -> None:
    """Bind every function of this file."""
    x, y = [numbers("x")], [numbers("y")]
    sums = [numbers("add"), numbers("sub")]
    triton.bind("AddSub", add_sub, [numbers(), numbers()], sums, config=ModelConfig(max_batch_size=8), strict=True)
    inputs = [numbers("a"), numbers("t", optional=True), numbers("w", optional=True)]
    triton.bind("weighted", weighted, inputs, y, config=ModelConfig(max_batch_size=8), strict=True)
    text, upper = Tensor((1,), np.bytes_, "text"), Tensor((1,), np.bytes_, "upper")
    triton.bind("texts", texts, [text], [upper], config=ModelConfig(batching=False), strict=True)
    for name, function in (("scaled", scaled), ("caller_of", caller_of), ("fails", fails), ("method", Model().infer)):
        triton.bind(name, function, x, y)
    triton.bind("from_parameters", from_parameters, [], y, strict=True)
    triton.bind("strict", in_doubles, x, y, strict=True)
    triton.bind("lenient", in_doubles, x, y)
    for name, wrong in (("fewer", one_row_less), ("twice", twice), ("nothing", nothing)):
        triton.bind(name, wrong, x, y)
    triton.bind("context", context_of, x, y, config=ModelConfig(max_batch_size=7))
    for name, late in (("stuck", stuck), ("sleeps", sleeps)):
        triton.bind(name, late, x, y, config=ModelConfig(deadline_s=0.2))
    for name, stream in (("counts", counts), ("counts_later", counts_later), ("breaks_off", breaks_off)):
        triton.bind(name, stream, x, y, config=ModelConfig(decoupled=True))
    triton.bind("instances", [add_sub, lambda requests: add_sub(requests)], [numbers(), numbers()], sums)
    warmup = ModelWarmup("random", 3, {"x": WarmupInput(np.float32, (4,), random_data=True)}, count=2)
    triton.bind("warmed", warmed, x, y, config=ModelConfig(model_warmup=[warmup]))


@pytest.fixture(scope="module")
def triton() -> Iterator[Triton]:
    with Triton(config=FORWARDING, security_config=TritonSecurityConfig(access_token="open")) as triton:
        bind_all(triton)
        yield triton
        Calls.release.set()


@pytest.fixture(params=["http", "grpc"])
def url(request: pytest.FixtureRequest, triton: Triton) -> str:
    return f"http://{triton.http_url}" if request.param == "http" else f"grpc://{triton.grpc_url}"


def test_a_batch_and_a_sample(url: str) -> None:
    with ModelClient(url, "AddSub") as client:
        found = client.infer_batch(ROWS, ROWS)
        assert found["add"].tolist() == [[2], [4]]
        assert found["sub"].tolist() == [[0], [0]]
        assert client.infer_sample(INPUT_1=ONE, INPUT_2=ONE)["add"].tolist() == [6]
        assert client.model_config.max_batch_size == 8
        assert [spec.name for spec in client.model_config.inputs or ()] == ["INPUT_1", "INPUT_2"]


def test_optional_inputs_are_filled_and_first_values_taken(url: str) -> None:
    with ModelClient(url, "weighted") as client:
        assert client.infer_batch(a=ROWS)["y"].tolist() == [[3], [4]]
        assert client.infer_batch(a=ROWS, w=np.full((2, 1), 10, np.float32))["y"].tolist() == [[12], [22]]
        with pytest.raises(PyTritonClientInferenceServerError, match="values on the 'w' input are not equal"):
            client.infer_batch(a=ROWS, w=ROWS)


def test_strings_of_a_model_without_batches(url: str) -> None:
    with ModelClient(url, "texts") as client:
        assert client.infer_sample(np.array([b"quiet"]))["upper"].tolist() == [b"QUIET"]
        with pytest.raises(PyTritonClientModelDoesntSupportBatchingError):
            client.infer_batch(np.array([[b"quiet"]]))
        with pytest.raises(RuntimeError, match="Unicode inputs are not supported"):
            client.infer_sample(np.array(["quiet"]))


def test_parameters_and_arrays_that_may_be_written(url: str) -> None:
    with ModelClient(url, "scaled") as client:
        assert client.infer_batch(ROWS, parameters={"factor": 4})["y"].tolist() == [[4], [8]]


def test_a_model_without_inputs(url: str) -> None:
    # ``ModelClient`` wants inputs, as PyTriton's does.
    with naiad.client.Client(url) as client:
        assert client.infer("from_parameters", {}, parameters={"value": 7})["y"].tolist() == [[7]]


def test_headers_of_calls_need_no_further_connections(url: str) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def ask() -> int:
        async with AsyncioModelClient(url, "caller_of") as client:
            await client.model_config
            before = open_files()
            for number in range(20):
                found = await client.infer_sample(ONE, headers={"x-caller": number})
                assert found["y"].item() == number
            return open_files() - before

    with ModelClient(url, "caller_of") as client:
        assert client.infer_sample(ONE, headers={"x-caller": "1"})["y"].item() == 1
        before = open_files()
        for number in range(20):
            assert client.infer_sample(ONE, headers={"x-caller": number})["y"].item() == number
        assert open_files() - before <= 0
    assert asyncio.run(ask()) <= 0


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("fails", "ValueError: the kettle is empty"),
        ("strict", "`y` for model `strict` has invalid type"),
        ("fewer", "expected 2 rows"),
        ("twice", "yielded more than one result"),
        ("nothing", r"lack \['y'\]"),
        ("stuck", r"did not respond within its deadline of 0\.2 s|Request timeout expired"),
        ("sleeps", r"did not respond within its deadline of 0\.2 s"),
    ],
)
def test_errors_reach_the_caller_with_their_text(url: str, model: str, text: str) -> None:
    with ModelClient(url, model) as client, pytest.raises(PyTritonClientInferenceServerError, match=text):
        client.infer_batch(ROWS)


def test_what_is_not_strict_is_cast_to_the_configured_datatype(url: str) -> None:
    with ModelClient(url, "lenient") as client:
        found = client.infer_batch(ROWS)["y"]
        assert found.dtype == np.float32
        assert found.tolist() == ROWS.tolist()


def test_methods_instances_contexts_and_warm_up(triton: Triton, url: str) -> None:
    with ModelClient(url, "method") as client:
        assert client.infer_sample(ONE)["y"].tolist() == [15]
    with ModelClient(url, "context") as client:
        assert client.infer_sample(ONE)["y"].tolist() == [21]
    with ModelClient(url, "instances") as client:
        assert client.infer_sample(ONE, ONE)["add"].tolist() == [6]
    assert Calls.warmed == [(3, 4), (3, 4)]


@batch
def warms_up_badly(**inputs: Array) -> Outputs:
    if "b" not in inputs:
        raise ValueError("cold")
    return {"sum": inputs["a"] + inputs["b"]}


def test_a_warm_up_that_fails_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    partial = {"a": WarmupInput(np.float32, (1,), zero_data=True)}
    lost = {"a": WarmupInput(np.float32, (1,), input_data_file=str(tmp_path / "lost.npy"))}
    config = ModelConfig(model_warmup=[ModelWarmup("partial", 1, partial, 1), ModelWarmup("lost", 1, lost, 1)])
    with caplog.at_level(logging.WARNING), Triton(config=LOCAL) as triton:
        triton.bind("sum", warms_up_badly, [numbers("a"), numbers("b")], [numbers("sum")], config=config)
        with ModelClient(triton.http_url, "sum") as client:
            assert client.infer_sample(ONE, ONE)["sum"].tolist() == [6]
    told = [record.getMessage() for record in caplog.records if "warm-up" in record.getMessage()]
    assert len(told) == 2
    assert told[0] == "a warm-up request of model 'sum' failed: ValueError: cold"
    assert "lost.npy" in told[1]


@pytest.mark.slow
def test_a_warm_up_that_fails_in_a_process_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    def cold(requests: list[Request]) -> list[Outputs]:
        raise ValueError("cold")

    warmup = ModelWarmup("zeros", 1, {"x": WarmupInput(np.float32, (1,), zero_data=True)}, 1)
    with caplog.at_level(logging.WARNING), Triton(config=LOCAL) as triton:
        config = ModelConfig(model_warmup=[warmup])
        triton.bind("cold", cold, [numbers("x")], [numbers("y")], config=config, workers="process")
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert any("a warm-up request of model 'cold' failed: ValueError: cold" in text for text in warnings)


def test_a_warm_up_may_lack_inputs_and_outputs(caplog: pytest.LogCaptureFixture) -> None:
    def echoes(requests: list[Request]) -> list[Outputs]:
        return [{f"{name}_back": array for name, array in request.items()} for request in requests]

    warmup = ModelWarmup("one input", 2, {"a": WarmupInput(np.float32, (1,), zero_data=True)}, 1)
    outputs = [numbers("a_back"), numbers("b_back")]
    with caplog.at_level(logging.WARNING), Triton(config=LOCAL) as triton:
        config = ModelConfig(model_warmup=[warmup])
        triton.bind("echo", echoes, [numbers("a"), numbers("b")], outputs, config=config, strict=True)
    assert not [record for record in caplog.records if "warm-up" in record.getMessage()]


@pytest.mark.parametrize("model", ["counts", "counts_later"])
def test_decoupled_responses_come_one_by_one(triton: Triton, model: str) -> None:
    with DecoupledModelClient(f"grpc://{triton.grpc_url}", model) as client:
        assert [found["y"].tolist() for found in client.infer_sample(ONE)] == [[0], [3], [6]]
        assert [found["y"].tolist() for found in client.infer_batch(ROWS)][2] == [[2], [4]]
        # A caller that reads no further cancels its own request alone.
        assert next(iter(client.infer_sample(ONE)))["y"].tolist() == [0]
        assert len(list(client.infer_sample(ONE))) == 3


def test_a_stream_that_fails_says_so_behind_what_it_sent(triton: Triton) -> None:
    with DecoupledModelClient(f"grpc://{triton.grpc_url}", "breaks_off") as client:
        responses = iter(client.infer_sample(ONE))
        assert next(responses)["y"].tolist() == [3]
        with pytest.raises(PyTritonClientInferenceServerError, match="no second one"):
            next(responses)


def test_clients_of_the_wrong_kind_say_so(triton: Triton) -> None:
    with pytest.raises(PyTritonClientValueError, match="only supported for grpc"):
        DecoupledModelClient(f"http://{triton.http_url}", "counts")

    async def ask() -> None:
        async with AsyncioDecoupledModelClient(f"http://{triton.http_url}", "counts") as client:
            await anext(client.infer_sample(ONE))

    with pytest.raises(PyTritonClientValueError, match="only supported for grpc"):
        asyncio.run(ask())
    with (
        DecoupledModelClient(f"grpc://{triton.grpc_url}", "AddSub") as client,
        pytest.raises(PyTritonClientInferenceServerError, match="coupled"),
    ):
        client.infer_sample(ONE, ONE)
    with (
        ModelClient(f"grpc://{triton.grpc_url}", "counts") as plain,
        pytest.raises(PyTritonClientInferenceServerError, match="decoupled"),
    ):
        plain.infer_sample(ONE)


def test_coroutines_and_futures(triton: Triton, url: str) -> None:
    async def ask() -> list[Any]:
        async with AsyncioModelClient(url, "AddSub", lazy_init=False) as client:
            found: list[Any] = await asyncio.gather(*(client.infer_sample(ONE, ONE) for _ in range(8)))
        async with AsyncioDecoupledModelClient(f"grpc://{triton.grpc_url}", "counts") as streaming:
            return found + [response["y"].tolist() async for response in streaming.infer_sample(ONE)]

    found = asyncio.run(ask())
    assert [one["add"].tolist() for one in found[:8]] == [[6]] * 8
    assert found[8:] == [[0], [3], [6]]
    with FuturesModelClient(url, "AddSub", max_workers=4) as client:
        assert {f.result(30)["add"].item() for f in [client.infer_sample(ONE, ONE) for _ in range(20)]} == {6}
        assert client.model_config().result(30).model_name == "AddSub"
    with pytest.raises(PyTritonClientClosedError):
        client.infer_sample(ONE, ONE)


def test_unchanged_clients_of_the_field(triton: Triton) -> None:
    for library, address in ((tritonclient.http, triton.http_url), (tritonclient.grpc, triton.grpc_url)):
        client = library.InferenceServerClient(address)
        given = library.InferInput("x", [2, 1], "FP32")
        given.set_data_from_numpy(ROWS)
        found = client.infer("scaled", [given], parameters={"factor": 2})
        assert found.as_numpy("y").tolist() == [[2], [4]]
        client.close()


def test_waits_on_clients_of_the_field(triton: Triton) -> None:
    for library, address in ((tritonclient.http, triton.http_url), (tritonclient.grpc, triton.grpc_url)):
        client = library.InferenceServerClient(address)
        assert get_model_config(client, "AddSub", timeout_s=30).max_batch_size == 8
        with pytest.raises(PyTritonClientTimeoutError, match="Waiting for model absent/<latest> to be ready timed out"):
            wait_for_model_ready(client, "absent", timeout_s=0.1)
        client.close()

    async def ask() -> None:
        for library, address in ((tritonclient.http.aio, triton.http_url), (tritonclient.grpc.aio, triton.grpc_url)):
            client = library.InferenceServerClient(address)
            assert (
                await asyncio_get_model_config(client=client, model_name="AddSub", timeout_s=30)
            ).max_batch_size == 8
            await client.close()
        # Nobody listens.
        client = tritonclient.http.aio.InferenceServerClient("localhost:1")
        with pytest.raises(PyTritonClientTimeoutError, match="Timeout while waiting for server"):
            await asyncio_wait_for_server_ready(asyncio_client=client, timeout_s=0.1)
        await client.close()

    asyncio.run(ask())
    with naiad.Server(http_address="127.0.0.1", http_port=0, grpc_address="127.0.0.1", grpc_port=0) as server:
        server.bind("double", lambda x: 2 * x)
        for library, address in ((tritonclient.http, server.http_url), (tritonclient.grpc, server.grpc_url)):
            client = library.InferenceServerClient(address)
            assert get_model_state(client, "double") is ModelState.READY
            assert get_model_state(client, "absent") is ModelState.UNAVAILABLE
            client.close()


def test_what_cannot_be_bound_is_refused(triton: Triton) -> None:
    x = [numbers("x")]
    with pytest.raises(PyTritonInvalidOperationError, match="same name twice"):
        triton.bind("addsub", add_sub, x, x)
    with pytest.raises(PyTritonValidationError, match="alphanumeric"):
        triton.bind("a/b", add_sub, x, x)
    with pytest.raises(PyTritonValidationError, match="cannot be optional"):
        triton.bind("other", add_sub, x, [numbers("y", optional=True)])
    with pytest.raises(PyTritonValidationError, match="deadline_s=-1"):
        triton.bind("other", add_sub, x, x, config=ModelConfig(deadline_s=-1))


def test_protected_endpoints_need_the_token(triton: Triton, url: str) -> None:
    with ModelClient(url, "AddSub") as client, pytest.raises(PyTritonClientInferenceServerError):
        client.unload_model()
    assert triton.get_access_token() == "open"


def test_a_rule_of_the_program_stands_beside_the_token() -> None:
    config = replace(LOCAL, http_restricted_api="trace,statistics:key=own", grpc_restricted_protocol="trace:key=own")
    with Triton(config=config, security_config=TritonSecurityConfig(access_token="open")) as triton:

        def status(path: str, headers: dict[str, str]) -> int:
            request = urllib.request.Request(f"http://{triton.http_url}/v2/{path}", headers=headers)
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return int(answer.status)
            except urllib.error.HTTPError as error:
                return error.code

        for path, right, wrong in (
            ("models/stats", {"key": "own"}, {"triton-access-token": "open"}),
            ("trace/setting", {"key": "own"}, {"triton-access-token": "open"}),
            ("logging", {"triton-access-token": "open"}, {"key": "own"}),
        ):
            assert (status(path, right), status(path, wrong)) == (200, 403)


def test_waits_send_the_token_of_protected_endpoints() -> None:
    security = TritonSecurityConfig("open", ["health", "model-config", "model-repository"])
    with Triton(config=LOCAL, security_config=security) as triton:
        triton.bind("AddSub", add_sub, [numbers(), numbers()], [numbers("add"), numbers("sub")])
        for library, scheme, address in (
            (tritonclient.http, "http", triton.http_url),
            (tritonclient.grpc, "grpc", triton.grpc_url),
        ):
            token = create_auth_headers("open", scheme)
            for client in (library.InferenceServerClient(address), create_client_from_url(f"{scheme}://{address}")):
                with pytest.raises(PyTritonClientTimeoutError):
                    wait_for_server_ready(client, 0.1)
                wait_for_server_ready(client, 30, headers=token)
                wait_for_model_ready(client, "AddSub", timeout_s=30, headers=token)
                assert get_model_config(client, "AddSub", timeout_s=30, headers=token).max_batch_size == 4
                assert get_model_state(client, "AddSub", headers=token) is ModelState.READY
                client.close()
        with RemoteTriton(f"grpc://{triton.grpc_url}", access_token="open") as remote:
            assert remote.is_connected()


def test_waits_end_with_an_error() -> None:
    with pytest.raises(PyTritonClientTimeoutError, match=r"Waiting for server to be ready timed out\."):
        ModelClient("localhost:1", "none", lazy_init=False, init_timeout_s=0.1)


def test_a_function_that_cannot_go_on_stops_the_server() -> None:
    def ends(requests: list[Request]) -> list[Outputs]:
        raise PyTritonUnrecoverableError("the device is gone")

    triton = Triton(config=LOCAL)
    with triton:
        triton.bind("ends", ends, [numbers("x")], [numbers("y")])
        with (
            ModelClient(f"http://{triton.http_url}", "ends") as client,
            pytest.raises(PyTritonClientInferenceServerError, match="the device is gone"),
        ):
            client.infer_sample(ONE)
        wait_until(lambda: not triton.is_alive() and not triton.is_connected(), 30, "the server to stop")


def test_serve_ends_with_stop_and_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    triton = Triton(config=LOCAL)
    triton.bind("AddSub", add_sub, [numbers(), numbers()], [numbers("add"), numbers("sub")])
    serving = threading.Thread(target=triton.serve)
    serving.start()
    try:
        wait_until(triton.is_alive, 60, "the server to start")
    finally:
        stopped = triton.stop()
        serving.join(30)
    assert stopped
    assert not triton.stop()
    assert set(threading.enumerate()) <= before


def test_the_log_goes_to_the_file_of_the_configuration(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "server.log"
    logger = logging.getLogger("naiad")
    before = logger.level, logger.propagate, list(logger.handlers)
    with caplog.at_level(logging.WARNING), Triton(config=replace(LOCAL, log_file=file, log_verbose=1)) as triton:
        triton.bind("AddSub", add_sub, [numbers(), numbers()], [numbers("add"), numbers("sub")])
        triton.bind("fails", fails, [numbers("x")], [numbers("y")])
        with (
            ModelClient(triton.http_url, "fails") as client,
            pytest.raises(PyTritonClientInferenceServerError, match="kettle"),
        ):
            client.infer_sample(ONE)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    lines = file.read_text()
    assert "successfully loaded 'AddSub'" in lines
    assert "the kettle is empty" in lines
    # The program's own handlers get what they got without the file.
    assert any("failed for model 'fails'" in record.getMessage() for record in caplog.records)
    assert not [record for record in caplog.records if record.levelno < logging.WARNING]


def test_servers_with_log_files_stand_beside_each_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("naiad")
    before = logger.level, logger.propagate, list(logger.handlers)
    with caplog.at_level(logging.WARNING):
        first, second = (Triton(config=replace(LOCAL, log_file=tmp_path / name)) for name in ("first", "second"))
        first.run()
        second.run()
        first.stop()
        second.bind("fails", fails, [numbers("x")], [numbers("y")])
        with (
            ModelClient(second.http_url, "fails") as client,
            pytest.raises(PyTritonClientInferenceServerError, match="kettle"),
        ):
            client.infer_sample(ONE)
        second.stop()
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    assert "the kettle is empty" in (tmp_path / "second").read_text()
    assert len([record for record in caplog.records if "failed for model 'fails'" in record.getMessage()]) == 1


def test_a_log_file_that_cannot_be_written_ends_the_start(tmp_path: Path) -> None:
    handlers = list(logging.getLogger("naiad").handlers)
    triton = Triton(config=replace(LOCAL, log_file=tmp_path / "absent" / "server.log"))
    with pytest.raises(OptionError, match="--log-file"):
        triton.run()
    assert logging.getLogger("naiad").handlers == handlers


def test_inside_a_running_loop() -> None:
    async def main() -> Any:
        with Triton(config=LOCAL) as triton:
            triton.bind("AddSub", add_sub, [numbers(), numbers()], [numbers("add"), numbers("sub")])
            async with AsyncioModelClient(triton.http_url, "AddSub") as client:
                return (await client.infer_sample(ONE, ONE))["add"].item()

    assert asyncio.run(main()) == 6


def test_the_ports_of_cloud_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGEMAKER_TRITON_DEFAULT_MODEL_NAME", "AddSub")
    monkeypatch.setenv("NAIAD_SAGEMAKER_ADDRESS", "127.0.0.1")
    monkeypatch.setenv("NAIAD_VERTEX_AI_ADDRESS", "127.0.0.1")
    monkeypatch.setenv("AIP_PREDICT_ROUTE", "/predict")
    monkeypatch.setenv("AIP_HEALTH_ROUTE", "/health")
    sagemaker, vertex_ai = free_ports(2)
    config = replace(
        LOCAL, allow_sagemaker=True, sagemaker_port=sagemaker, allow_vertex_ai=True, vertex_ai_port=vertex_ai
    )
    inputs = [{"name": f"INPUT_{n}", "datatype": "FP32", "shape": [1, 1], "data": [3]} for n in (1, 2)]
    body = json.dumps({"inputs": inputs}).encode()
    # Vertex AI looks for its model at the start, so this server does not start before its model is bound.
    with Triton(config=config) as triton:
        assert not triton.is_connected()
        triton.bind("AddSub", add_sub, [numbers(), numbers()], [numbers("add"), numbers("sub")])
        triton.run()
        for port, path in ((sagemaker, "/invocations"), (vertex_ai, "/predict")):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=30) as answer:
                found = {output["name"]: output["data"] for output in json.load(answer)["outputs"]}
            assert found == {"add": [6], "sub": [0]}


def test_a_port_of_a_platform_opens_nothing_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIP_MODE", "PREDICTION")
    with Triton(config=replace(LOCAL, sagemaker_port=1, vertex_ai_port=1)) as triton:
        triton.bind("AddSub", add_sub, [numbers(), numbers()], [numbers("add"), numbers("sub")])
        triton.run()
        assert triton.http_url and triton.grpc_url


def test_vertex_ai_needs_a_model_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIP_PREDICT_ROUTE", "/predict")
    monkeypatch.setenv("AIP_HEALTH_ROUTE", "/health")
    monkeypatch.setenv("NAIAD_VERTEX_AI_ADDRESS", "127.0.0.1")
    triton = Triton(config=replace(LOCAL, allow_vertex_ai=True, vertex_ai_port=0))
    with pytest.raises(OptionError, match="Expect the model repository contains only a single model"):
        triton.run()
    assert not triton.stop()


def test_requests_are_batched(caplog: pytest.LogCaptureFixture) -> None:
    rows: list[int] = []
    begun, release = threading.Event(), threading.Event()

    @batch
    def noted(x: Array) -> Outputs:
        rows.append(len(x))
        begun.set()
        release.wait(30)
        return {"y": x}

    with caplog.at_level(logging.ERROR), Triton(config=LOCAL) as triton:
        config = ModelConfig(max_batch_size=16, batcher=DynamicBatcher(preferred_batch_size=[4]))
        triton.bind("noted", noted, [numbers("x")], [numbers("y")], config=config)
        with FuturesModelClient(triton.http_url, "noted", max_workers=5) as client:
            first = client.infer_sample(ONE)
            assert begun.wait(30)
            others = [client.infer_sample(ONE) for _ in range(4)]
            wait_until(
                lambda: 'pending_request_count{model="noted",version="1"} 4' in triton.metrics(),
                30,
                "four requests in the queue",
            )
            release.set()
            assert all(future.result(30) for future in (first, *others))
    assert rows == [1, 4]


@pytest.mark.slow
def test_functions_in_processes_here_and_on_another_server() -> None:
    """One loaded by this program, one sent to the server by ``RemoteTriton``."""

    def scale(factor: int) -> Callable[..., Outputs]:
        return batch(lambda x: {"y": x * factor})

    x, y = [numbers("x")], [numbers("y")]
    security = TritonSecurityConfig(access_token="open")
    with Triton(config=LOCAL, security_config=security) as triton:
        triton.bind("here", scale(2), x, y, workers="process", strict=True)
        with RemoteTriton(f"http://{triton.http_url}", access_token="open") as remote:
            remote.bind("there", scale(3), x, y, config=ModelConfig(decoupled=True))
            with ModelClient(f"http://{triton.http_url}", "here") as client:
                assert client.infer_batch(ROWS)["y"].tolist() == [[2], [4]]
            with DecoupledModelClient(f"grpc://{triton.grpc_url}", "there") as streaming:
                assert [found["y"].tolist() for found in streaming.infer_sample(ONE)] == [[9]]
        with (
            ModelClient(f"http://{triton.http_url}", "there", init_timeout_s=0.1) as gone,
            pytest.raises(PyTritonClientTimeoutError),
        ):
            gone.infer_sample(ONE)
