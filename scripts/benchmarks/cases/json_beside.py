"""The effect of callers that send large JSON on the tail of another caller's small requests."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from .. import machine, models
from ..figures import Bound, CaseError, Figure
from ..infer import Request, ask, binary_request, check_answer, infer_path
from ..load import Load, generator, measure
from ..rounds import alternate, median
from ..servers import HTTP, Server, naiad
from ..settings import Settings
from .mlp import input_row

DIMS = [-1]
NUMBER = "0.123456789"
LARGE_MIB = 60
CALLERS = 8
CALLERS_BYTES = 300 << 10
"""Less than what a worker process reads."""
CONNECTIONS = 4
BOUND = Bound("<=", 10.0)


def json_beside(settings: Settings) -> Iterator[Figure]:
    """p99 of small requests alone, and while another caller sends 60 MiB of JSON one after another."""
    repository = settings.work / "json-beside"
    models.add_identity(repository, "identity", DIMS, max_batch_size=8)
    small = binary_request("identity", {"INPUT0": input_row()}, "OUTPUT0")
    large = large_request((2 if settings.quick else LARGE_MIB) << 20)
    note = f"{len(large.body) >> 20} MiB of JSON"
    yield from beside(settings, repository, small, large, "json_beside", note)


def json_callers_beside(settings: Settings) -> Iterator[Figure]:
    """p99 of small requests alone, and while other callers send JSON that the event loop reads itself."""
    repository = settings.work / "json-callers-beside"
    models.add_identity(repository, "identity", DIMS, max_batch_size=8)
    small = binary_request("identity", {"INPUT0": input_row()}, "OUTPUT0")
    large = large_request(CALLERS_BYTES)
    note = f"{CALLERS} callers of {len(large.body) >> 10} KiB of JSON"
    yield from beside(settings, repository, small, large, "json_callers_beside", note, CALLERS)


def beside(
    settings: Settings,
    repository: Path,
    small: Request,
    large: Request,
    name: str,
    note: str,
    callers: int = 1,
    service: str = HTTP,
) -> Iterator[Figure]:
    """A case: p99 of ``small``, to the model ``identity``, alone and beside ``large``, and the difference.

    Args:
        callers: how many send ``large`` at the same time.
        service: where they send it.
    """
    with naiad(repository, settings.work, machine.server_core()) as server:
        check_answer(server.port, small, "OUTPUT0", input_row())
        sent: list[int] = []
        contexts: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "quiet": nullcontext,
            "large": partial(sending, server.at(service), large, sent, callers),
        }

        def take(context: Callable[[], AbstractContextManager[None]]) -> Load:
            with context():
                return measure(server, small, CONNECTIONS, settings.seconds, settings.work)

        take(nullcontext)
        loads = alternate(settings.rounds, {name: partial(take, context) for name, context in contexts.items()})
    p99 = {name: median(found, lambda load: load.p99_us) for name, found in loads.items()}
    yield Figure(f"{name}_quiet_p99", p99["quiet"], "us", note=f"alone, connections: {CONNECTIONS}, by {generator()}")
    yield Figure(f"{name}_large_p99", p99["large"], "us", note=f"beside {note}, {sum(sent)} times")
    yield Figure(f"{name}_moved", (p99["large"] - p99["quiet"]) / 1000, "ms", BOUND, "of p99")


def large_request(size: int) -> Request:
    """A request of about this many bytes of JSON, with a binary response."""
    count = size // (len(NUMBER) + 1)
    described = {"name": "INPUT0", "datatype": "FP32", "shape": [1, count], "data": []}
    wanted = [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]
    text = json.dumps({"outputs": wanted, "inputs": [described]})
    body = text.replace("[]", "[" + ",".join([NUMBER] * count) + "]").encode()
    return Request(infer_path("identity"), {"Content-Type": "application/json"}, body)


@contextmanager
def sending(server: Server, request: Request, sent: list[int], callers: int) -> Iterator[None]:
    """Other callers send a request again and again meanwhile.

    Raises:
        CaseError: one was not answered with 200.
    """
    over = threading.Event()
    wrong: list[str] = []

    def send() -> None:
        while not over.is_set() and not wrong:
            status, _, body = ask(server.port, request)
            sent.append(1)
            if status != 200:
                wrong.append(f"the large request was answered {status}: {body[:300].decode(errors='replace')}")

    senders = [threading.Thread(target=send) for _ in range(callers)]
    for sender in senders:
        sender.start()
    try:
        yield
    finally:
        over.set()
        for sender in senders:
            sender.join()
    if wrong:
        raise CaseError(wrong[0])
