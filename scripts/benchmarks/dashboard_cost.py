"""What an open page of the dashboard costs a server: processor time and bytes per second.

Usage: dashboard_cost.py [MODELS]

Serves MODELS models (100), opens one page, and sends requests to all models in turn for ten seconds. Prints the
processor time of the server's loop that one update of the page takes, while the models are idle and while all are busy.
"""

from __future__ import annotations

import contextlib
import http.client
import statistics
import sys
import tempfile
import threading
import time

from naiad import Server
from naiad.frontends.dashboard.event_stream import DashboardStream
from naiad.testing import write_model

CONFIG = """
backend: "identity" max_batch_size: 8
input [ { name: "INPUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUTPUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
dynamic_batching { max_queue_delay_microseconds: 100 }
"""
BODY = b'{"inputs":[{"name":"INPUT","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}'
IDLE_S, BUSY_S = 4.0, 10.0


def main(models: int) -> None:
    """Measure and print."""
    spent: list[float] = []
    update = DashboardStream.update

    def timed(stream: DashboardStream) -> None:
        begun = time.thread_time()
        update(stream)
        spent.append(time.thread_time() - begun)

    DashboardStream.update = timed  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        for number in range(models):
            write_model(folder, f"model_{number:04}", CONFIG)
        options = {"http_address": "127.0.0.1", "http_port": 0, "grpc_address": "127.0.0.1", "grpc_port": 0}
        with Server(folder, model_control_mode="none", **options) as server:
            measure(server.http_url, models, spent)


def measure(host: str, models: int, spent: list[float]) -> None:
    """Open a page of the server at ``host``, and print what ``spent`` gets."""
    page = http.client.HTTPConnection(host)
    page.request("GET", "/dashboard/events")
    events = page.getresponse()
    received = [0]

    def read() -> None:
        with contextlib.suppress(Exception):
            while data := events.read1(1 << 16):
                received[0] += len(data)

    threading.Thread(target=read, daemon=True).start()
    time.sleep(IDLE_S)
    idle, before = list(spent), received[0]
    spent.clear()
    requests = busy(host, models)
    sent = received[0] - before
    print(
        f"{models} models: an update takes {statistics.median(idle) * 1e3:.2f} ms while all are idle and "
        f"{statistics.median(spent) * 1e3:.2f} ms while all are busy ({len(spent) / BUSY_S:.1f} updates/s, "
        f"{sum(spent) / BUSY_S:.2%} of a processor); {sent / BUSY_S / 1e3:.2f} kB/s; {requests / BUSY_S:.0f} requests/s"
    )
    page.close()


def busy(host: str, models: int) -> int:
    """Send requests to all models in turn; the number of them."""
    connection = http.client.HTTPConnection(host)
    end = time.monotonic() + BUSY_S
    count = 0
    while time.monotonic() < end:
        connection.request("POST", f"/v2/models/model_{count % models:04}/infer", BODY)
        connection.getresponse().read()
        count += 1
    connection.close()
    return count


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100)
