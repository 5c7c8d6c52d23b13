"""Traces in OpenTelemetry's mode: a real server sends spans to a real collector."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from time import time_ns
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from naiad.errors import OptionError
from naiad.options.trace_config import TraceSetting
from naiad.telemetry.tracing.otlp import span_settings
from naiad.testing import RunningServer, run_to_end, server_environment, serving, wait_until
from support.otlp_collector import Collector, collecting, collecting_over_grpc
from support.served_ensembles import chain, write_ensemble
from support.served_models import LOOK_UP, identity, numbers, write_model
from support.served_transports import TRANSPORTS

TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found
        assert not found.problems


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_model(tmp_path / "models", "inline", identity())
    write_model(tmp_path / "models", "look_up", "max_batch_size: 4", graph=LOOK_UP)
    return tmp_path / "models"


def settings(collector: Collector, *more: str) -> list[str]:
    every = ("mode=opentelemetry", "level=TIMESTAMPS", f"opentelemetry,url={collector.url}", *more)
    return [f"--trace-config={setting}" for setting in every]


def infer(server: RunningServer, *headers: tuple[str, str], model: str = "inline", **more: Any) -> int:
    body = json.dumps(numbers([1], [1], **more)).encode()
    return server.request("POST", f"/v2/models/{model}/infer", body, headers).status


def infer_over_grpc(server: RunningServer, headers: dict[str, str]) -> None:
    with tritonclient.grpc.InferenceServerClient(server.grpc_url) as client:
        tensor = tritonclient.grpc.InferInput("INPUT0", [1], "INT32")
        tensor.set_data_from_numpy(np.ones(1, np.int32))
        client.infer("inline", [tensor], headers=headers)


def events(span: Span) -> list[str]:
    return [event.name for event in span.events]


def attributes(span: Span) -> dict[str, object]:
    return {a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in span.attributes}


@pytest.mark.slow
def test_the_spans_of_a_request(tmp_path: Path, models: Path, collector: Collector) -> None:
    more = ("rate=1", "opentelemetry,resource=deployment=test", "opentelemetry,resource=service.name=mine")
    begun_ns = time_ns()
    with serving(tmp_path / "log", models, *settings(collector, *more)) as server:
        assert infer(server, id="r1") == 200
    root, model, compute = collector.spans
    assert [s.name for s in collector.spans] == ["InferRequest", "inline", "compute"]
    assert {s.kind for s in collector.spans} == {Span.SPAN_KIND_SERVER}
    assert len({s.trace_id for s in collector.spans}) == 1
    assert [root.parent_span_id, model.parent_span_id, compute.parent_span_id] == [b"", root.span_id, model.span_id]
    assert events(root) == [
        "HTTP_RECV_START",
        "HTTP_RECV_END",
        "INFER_RESPONSE_COMPLETE",
        "HTTP_SEND_START",
        "HTTP_SEND_END",
    ]
    assert events(model) == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]
    assert events(compute) == ["COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END"]
    assert attributes(model) == {
        "triton.model_name": "inline",
        "triton.model_version": 1,
        "triton.trace_id": 1,
        "triton.trace_parent_id": 0,
        "triton.request_id": "r1",
    }
    assert collector.resource == {"service.name": "mine", "deployment": "test"}
    assert begun_ns < root.start_time_unix_nano <= compute.start_time_unix_nano
    assert compute.end_time_unix_nano <= root.end_time_unix_nano < time_ns()


@pytest.mark.slow
def test_spans_of_a_step_have_the_events_of_its_model_alone(tmp_path: Path, models: Path, collector: Collector) -> None:
    write_ensemble(models, "chain", *chain("inline"), batch=0)
    body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1], "data": [1]}]}
    with serving(tmp_path / "log", models, *settings(collector, "rate=1")) as server:
        assert server.infer("chain", body).status == 200
    found = {s.name: events(s) for s in collector.spans}
    assert list(found) == ["InferRequest", "chain", "inline", "compute"]
    assert "INFER_RESPONSE_COMPLETE" in found["InferRequest"]
    assert found["chain"] == found["inline"] == ["REQUEST_START", "QUEUE_START", "REQUEST_END"]


@pytest.mark.slow
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_trace_of_a_caller_goes_on_whatever_the_rate(
    tmp_path: Path, models: Path, collector: Collector, transport: str
) -> None:
    given = [*settings(collector, "rate=0"), f"--grpc-transport={transport}"]
    with serving(tmp_path / "log", models, *given) as server:
        assert infer(server) == 200
        assert infer(server, ("traceparent", PARENT), ("tracestate", "a=b")) == 200
        assert infer(server, ("traceparent", f"00-{'0' * 32}-{SPAN_ID}-01")) == 200
        infer_over_grpc(server, {"traceparent": PARENT})
        infer_over_grpc(server, {})
    roots = [s for s in collector.spans if s.name == "InferRequest"]
    assert len(collector.spans) == 6
    assert [(s.trace_id.hex(), s.parent_span_id.hex()) for s in roots] == [(TRACE_ID, SPAN_ID)] * 2
    assert [s.trace_state for s in roots] == ["a=b", ""]
    assert [events(s)[0] for s in roots] == ["HTTP_RECV_START", "GRPC_WAITREAD_START"]


@pytest.mark.slow
def test_a_failed_request_is_marked(tmp_path: Path, models: Path, collector: Collector) -> None:
    with serving(tmp_path / "log", models, *settings(collector, "rate=1")) as server:
        body = {"inputs": [{"name": "index", "datatype": "INT64", "shape": [1, 1], "data": [9]}]}
        assert server.infer("look_up", body).status == 500
    root, _, compute = collector.spans
    assert root.status.code == Status.STATUS_CODE_ERROR
    assert "out of data bounds" in root.status.message
    assert "COMPUTE_END" not in events(compute)


@pytest.mark.slow
def test_a_url_without_a_scheme_is_one_of_http(tmp_path: Path, models: Path, collector: Collector) -> None:
    given = [setting.replace("url=http://", "url=") for setting in settings(collector, "rate=1")]
    with serving(tmp_path / "log", models, *given) as server:
        assert infer(server) == 200
        assert server.get("/v2/trace/setting").json()["url"] == collector.url
    assert [s.name for s in collector.spans] == ["InferRequest", "inline", "compute"]


@pytest.mark.slow
def test_spans_are_sent_together_and_soon(tmp_path: Path, models: Path, collector: Collector) -> None:
    """A full batch at once, and what is left after the delay, while the server runs."""
    more = ("rate=1", "opentelemetry,bsp_max_export_batch_size=6", "opentelemetry,bsp_schedule_delay=50")
    with serving(tmp_path / "log", models, *settings(collector, *more)) as server:
        for _ in range(5):
            assert infer(server) == 200
        wait_until(lambda: len(collector.spans) == 15, 10, "15 spans")
        assert max(collector.deliveries) <= 6
        shown = server.get("/v2/trace/setting").json()
        assert shown == {
            "trace_level": ["TIMESTAMPS"],
            "trace_rate": "1",
            "trace_count": "-1",
            "url": collector.url,
            "resource": "service.name=triton-inference-server",
            "bsp_max_queue_size": "2048",
            "bsp_schedule_delay": "50",
            "bsp_max_export_batch_size": "6",
            "trace_mode": "opentelemetry",
        }
        answer = server.post("/v2/trace/setting", {"trace_level": ["TENSORS"]})
        assert (answer.status, "is for files" in answer.error) == (501, True)
        assert server.post("/v2/trace/setting", {"trace_level": ["OFF"]}).status == 200
        assert infer(server, ("traceparent", PARENT)) == 200
    assert len(collector.spans) == 15


@pytest.mark.slow
def test_a_count_ends_and_the_traces_of_callers_go_on(tmp_path: Path, models: Path, collector: Collector) -> None:
    with serving(tmp_path / "log", models, *settings(collector, "rate=1", "count=1")) as server:
        for headers in ((), (), (("traceparent", PARENT),)):
            assert infer(server, *headers) == 200
        assert server.get("/v2/trace/setting").json()["trace_count"] == "0"
    assert [attributes(s)["triton.trace_id"] for s in collector.spans if s.name == "inline"] == [1, 2]


@pytest.mark.slow
def test_a_collector_that_is_gone_costs_no_answer(tmp_path: Path, models: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/v1/traces"
        variables = server_environment() | {"OTEL_BSP_MAX_QUEUE_SIZE": "3", "OTEL_EXPORTER_OTLP_TIMEOUT": "3"}
        with serving(tmp_path / "log", models, *settings(Collector(url), "rate=1"), env=variables) as server:
            for _ in range(50):
                assert infer(server) == 200
            assert server.get("/v2/trace/setting").json()["bsp_max_queue_size"] == "3"
    (failure,) = [line for line in server.log.splitlines() if f"traces cannot be sent to {url}" in line]
    assert "Connection refused" in failure
    assert "traces were dropped" in server.log


@pytest.mark.slow
def test_the_status_of_a_collector_that_refuses_is_logged(tmp_path: Path, models: Path) -> None:
    """A server of models is no collector: it answers 404."""
    with serving(tmp_path / "other", models) as other:
        url = f"http://127.0.0.1:{other.http}/v1/traces"
        with serving(
            tmp_path / "log", models, *settings(Collector(url), "rate=1", "opentelemetry,bsp_schedule_delay=50")
        ) as server:
            assert infer(server) == 200
            server.wait_for(f"traces cannot be sent to {url}: ")
    (failure,) = [line for line in server.log.splitlines() if "cannot be sent" in line]
    assert "404" in failure


@pytest.mark.slow
def test_without_the_extra_the_server_says_what_to_install(tmp_path: Path, models: Path) -> None:
    """A module in front of the library stands for an environment where it is not installed."""
    hidden = tmp_path / "hidden" / "opentelemetry"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").touch()
    variables = server_environment() | {"PYTHONPATH": os.pathsep.join([str(hidden.parent), *filter(None, sys.path)])}
    code, log = run_to_end(tmp_path / "log", models, "--trace-config=mode=opentelemetry", env=variables)
    assert code == 1
    assert "mode=opentelemetry needs OpenTelemetry's SDK" in log
    assert "run: pip install 'naiad[otel]'" in log


def test_a_wrong_variable_is_named(tmp_path: Path, models: Path) -> None:
    variables = server_environment() | {"OTEL_BSP_SCHEDULE_DELAY": "soon"}
    code, log = run_to_end(tmp_path / "log", models, "--trace-config=mode=opentelemetry", env=variables)
    assert code == 1
    assert "environment variable OTEL_BSP_SCHEDULE_DELAY: expected a number" in log


@pytest.mark.slow
def test_spans_over_grpc(tmp_path: Path, models: Path) -> None:
    variables = server_environment() | {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=secret"}
    with collecting_over_grpc() as collector:
        more = ("rate=1", "opentelemetry,protocol=grpc", "opentelemetry,resource=deployment=test")
        with serving(tmp_path / "log", models, *settings(collector, *more), env=variables) as server:
            assert infer(server, ("traceparent", PARENT), id="r1") == 200
            assert server.get("/v2/trace/setting").json()["protocol"] == "grpc"
            infer_over_grpc(server, {})
    roots = [s for s in collector.spans if s.name == "InferRequest"]
    assert [s.name for s in collector.spans] == ["InferRequest", "inline", "compute"] * 2
    assert [events(s)[0] for s in roots] == ["HTTP_RECV_START", "GRPC_WAITREAD_START"]
    assert (roots[0].trace_id.hex(), roots[0].parent_span_id.hex()) == (TRACE_ID, SPAN_ID)
    assert attributes(collector.spans[1])["triton.request_id"] == "r1"
    assert collector.resource["deployment"] == "test"
    assert collector.metadata["api-key"] == "secret"
    assert "cannot be sent" not in server.log


@pytest.mark.slow
def test_a_grpc_collector_that_is_gone_costs_no_answer(tmp_path: Path, models: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        variables = server_environment() | {
            "OTEL_BSP_MAX_QUEUE_SIZE": "3",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        }
        with serving(tmp_path / "log", models, *settings(Collector(url), "rate=1"), env=variables) as server:
            for _ in range(50):
                assert infer(server) == 200
            server.wait_for(f"traces cannot be sent to {url}")
            assert infer(server) == 200
    assert "Connection refused" in server.log


@pytest.mark.slow
def test_without_the_exporter_for_grpc_the_server_says_what_to_install(tmp_path: Path, models: Path) -> None:
    """A finder in front of the installed packages stands for an environment without this one."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'opentelemetry.exporter.otlp.proto.grpc':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}')\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    variables = server_environment() | {"PYTHONPATH": os.pathsep.join([str(hidden), *filter(None, sys.path)])}
    options = ("--trace-config=mode=opentelemetry", "--trace-config=opentelemetry,protocol=grpc")
    code, log = run_to_end(tmp_path / "log", models, *options, env=variables)
    assert code == 1
    assert "mode=opentelemetry with opentelemetry,protocol=grpc needs" in log
    assert "run: pip install 'naiad[otel-grpc]'" in log


@pytest.mark.parametrize(
    ("variable", "text"),
    [("OTEL_EXPORTER_OTLP_PROTOCOL", "unknown protocol"), ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "unknown protocol")],
)
def test_an_unknown_protocol_is_named(variable: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"environment variable {variable}: {text} 'http/json'"):
        span_settings((), {variable: "http/json"})


def test_the_url_follows_the_protocol() -> None:
    assert span_settings((), {}).url == "http://localhost:4318/v1/traces"
    assert span_settings((), {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).url == "http://localhost:4317"
    named = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}
    assert span_settings((), named).url == "http://localhost:4318/v1/traces"
    assert span_settings((TraceSetting("protocol", "http/protobuf"),), {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}).url == (
        "http://localhost:4318/v1/traces"
    )
