"""The load, run by Locust in an environment of its own: users who repeat one request.

The environment has ``LOAD_PLAN``, a JSON file with what to send, and ``LOAD_RESULT``, the file for what came of it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import gevent
from locust import FastHttpUser, User, constant, constant_throughput, events, task

PLAN = json.loads(Path(os.environ["LOAD_PLAN"]).read_text())
BODY = Path(PLAN["body"]).read_bytes()
TIMEOUT_S = PLAN["timeout_s"]
PACE = constant_throughput(PLAN["rate"]) if PLAN["rate"] else constant(0)


class HttpUser(FastHttpUser):
    """Over HTTP, on a connection of its own."""

    abstract = PLAN["protocol"] != "http"
    host = f"http://127.0.0.1:{PLAN['port']}"
    wait_time = PACE
    network_timeout = connection_timeout = TIMEOUT_S

    @task
    def ask(self) -> None:
        """One request; a status above 399 is a failure."""
        self.client.post(PLAN["path"], data=BODY, headers=PLAN["headers"], name="infer")


class GrpcUser(User):
    """Over gRPC, on a connection of its own."""

    abstract = PLAN["protocol"] != "grpc"
    wait_time = PACE

    def __init__(self, environment: Any) -> None:
        super().__init__(environment)
        import grpc
        import grpc.experimental.gevent

        grpc.experimental.gevent.init_gevent()
        # Without a pool of its own grpcio lets all channels to an address share one connection.
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        options += [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(f"127.0.0.1:{PLAN['port']}", options=options)
        self.call = self.channel.unary_unary(PLAN["path"])
        self.error = grpc.RpcError

    @task
    def ask(self) -> None:
        """One call; a status other than OK is a failure."""
        began, problem, length = time.perf_counter(), None, 0
        try:
            length = len(self.call(BODY, timeout=TIMEOUT_S))
        except self.error as error:
            problem = error
        self.environment.events.request.fire(
            request_type="grpc",
            name="infer",
            response_time=(time.perf_counter() - began) * 1000,
            response_length=length,
            exception=problem,
        )


@events.quitting.add_listener
def write_result(environment: Any, **_: object) -> None:
    """What all users saw; a failure of theirs is a figure and no failure of this run."""
    total = environment.stats.total
    times = os.times()
    result = {
        "requests": total.num_requests,
        "failures": total.num_failures,
        "problems": {str(error.error): error.occurrences for error in environment.stats.errors.values()},
        "seconds": (total.last_request_timestamp or total.start_time) - total.start_time,
        "p50_ms": total.get_response_time_percentile(0.5) or 0,
        "p95_ms": total.get_response_time_percentile(0.95) or 0,
        "cpu_seconds": times.user + times.system,
        "own_seconds": time.monotonic() - BEGAN,
    }
    Path(os.environ["LOAD_RESULT"]).write_text(json.dumps(result))
    environment.process_exit_code = 0


BEGAN = time.monotonic()
# Timers count from the time that the loop last looked at: the imports above would be a part of the run.
gevent.get_hub().loop.update_now()
