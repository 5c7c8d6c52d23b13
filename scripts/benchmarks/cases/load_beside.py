"""The effect of loading a model of 1 GB on the tail of another model's requests."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from .. import machine, models
from ..control import EXPLICIT, load, unload
from ..figures import Bound, CaseError, Figure
from ..infer import check_answer
from ..load import measure as measure_load
from ..load import measure_at
from ..rounds import alternate, median
from ..servers import Server, naiad
from ..settings import Settings
from .mlp import input_row, our_request

CONNECTIONS = 4
RATE = 1000
"""Requests a second: the project's promise for reloads under load."""
RATE_CONNECTIONS = 32
"""At most. So many requests can wait in the server at a time; the others wait for a connection, and that counts too."""
ROWS, QUICK_ROWS = 1 << 24, 1 << 20
"""Of 64 bytes each."""
BOUND = Bound("<", 1.10)
WAYS = ("thread", "process")
LOAD_ALONE = """
import sys
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""


def measure(settings: Settings) -> Iterator[Figure]:
    """p99 of the small network alone, and while a model with a table of 1 GB is loaded and unloaded all the time.

    Under callers that send all the time, and at a fixed rate that leaves room for the load. A program that has
    nothing to do with the server loads the same file, too: what that does to the tail is the machine's doing.
    """
    repository = settings.work / "load-beside"
    models.add_mlp(repository)
    rows = QUICK_ROWS if settings.quick else ROWS
    file = None
    for way in WAYS:
        execution = f'parameters {{ key: "execution" value {{ string_value: "{way}" }} }}'
        file = models.add_table(repository, f"large_{way}", rows, execution, like=file)
    options = (EXPLICIT, "--load-model=mlp")
    with naiad(repository, settings.work, options=options) as server:
        check_answer(server.port, our_request(), "y", models.mlp_by_hand(input_row()))
        for way in WAYS:
            yield from _beside(settings, server, way, rows * 64 / machine.MIB)
        assert file is not None
        yield from _beside_program(settings, server, file)


def _closed(settings: Settings, server: Server) -> float:
    return measure_load(server, our_request(), CONNECTIONS, settings.seconds, settings.work, pin=False).p99_us


def _at_rate(settings: Settings, server: Server) -> float:
    return measure_at(server, our_request(), RATE, RATE_CONNECTIONS, settings.seconds, settings.work).p99_us


def _beside(settings: Settings, server: Server, way: str, size_mib: float) -> Iterator[Figure]:
    for name, take, how in (
        (f"load_beside_{way}", _closed, f"connections: {CONNECTIONS}"),
        (f"load_beside_rate_{way}", _at_rate, f"{RATE} requests/s, from when each was due"),
    ):
        loads: list[int] = []
        alone, beside = _pairs(
            settings, partial(take, settings, server), partial(loading, server, f"large_{way}", loads)
        )
        yield Figure(f"{name}_alone_p99", alone, "us", note=how)
        yield Figure(f"{name}_p99", beside, "us", note=f"while {size_mib:.0f} MiB are loaded, {sum(loads)} times")
        yield Figure(f"{name}_ratio", beside / alone, "times", BOUND, f"of p99, execution={way}")


def _beside_program(settings: Settings, server: Server, file: Path) -> Iterator[Figure]:
    loads: list[int] = []
    alone, beside = _pairs(settings, partial(_at_rate, settings, server), partial(loading_alone, file, loads))
    note = f"of p99, while another program loads the same file, {sum(loads)} times"
    yield Figure("load_beside_rate_program_ratio", beside / alone, "times", note=note)


def _pairs(
    settings: Settings, take: Callable[[], float], loading_now: Callable[[], AbstractContextManager[None]]
) -> tuple[float, float]:
    """Medians measured alone and while something is being loaded."""

    def take_beside() -> float:
        with loading_now():
            return take()

    take()
    found = alternate(settings.rounds, {"alone": take, "beside": take_beside})
    return median(found["alone"], float), median(found["beside"], float)


@contextmanager
def loading(server: Server, model: str, loads: list[int]) -> Iterator[None]:
    """Load and unload a model all the time; ``loads`` gets how often that was over within the block.

    Raises:
        CaseError: a load failed.
    """

    def turn() -> None:
        load(server, model)
        unload(server, model)

    with _repeating(turn, loads):
        yield


@contextmanager
def loading_alone(file: Path, loads: list[int]) -> Iterator[None]:
    """Load a model all the time in a program of its own, which knows of no server; ``loads`` as for ``loading``.

    Raises:
        CaseError: a load failed.
    """

    def turn() -> None:
        done = subprocess.run(
            [sys.executable, "-c", LOAD_ALONE, str(file)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CaseError(f"{file} was not loaded: {done.stderr}")

    with _repeating(turn, loads):
        yield


@contextmanager
def _repeating(turn: Callable[[], None], loads: list[int]) -> Iterator[None]:
    stop = threading.Event()
    problems: list[CaseError] = []
    count = 0

    def work() -> None:
        nonlocal count
        try:
            while not stop.is_set():
                turn()
                # What is over later had no part in the measurement, or waited for a core until its end.
                count += not stop.is_set()
        except CaseError as error:
            problems.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if problems:
        raise problems[0]
    loads.append(count)
