"""A collector of spans on 127.0.0.1 that reads what OTLP exporters send, over HTTP or gRPC."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from gzip import decompress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What came: ``spans`` in their order, the size of each delivery, and the attributes of the last resource.

    ``metadata`` is that of the last call over gRPC.
    """

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    deliveries: list[int] = field(default_factory=list)
    resource: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    metadata: dict[str, str] = field(default_factory=dict)

    def take(self, path: str, type_: str, body: bytes) -> None:
        """Read one delivery."""
        if (path, type_) != ("/v1/traces", "application/x-protobuf"):
            self.problems.append(f"{path} {type_}")
        self.add(ExportTraceServiceRequest.FromString(body))

    def add(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans of one delivery."""
        found = [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]
        for resource in request.resource_spans:
            self.resource = {item.key: item.value.string_value for item in resource.resource.attributes}
        self.deliveries.append(len(found))
        self.spans += found


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = decompress(body)
            collector.take(self.path, self.headers["Content-Type"], body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def collecting_over_grpc() -> Iterator[Collector]:
    """A collector that is a server of grpcio."""
    collector = Collector()

    class Service(TraceServiceServicer):  # type: ignore[misc]
        def Export(
            self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
        ) -> ExportTraceServiceResponse:
            collector.metadata = dict(context.invocation_metadata())
            collector.add(request)
            return ExportTraceServiceResponse()

    server = grpc.server(ThreadPoolExecutor(1))
    add_TraceServiceServicer_to_server(Service(), server)
    collector.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None).wait()
