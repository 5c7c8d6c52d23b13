"""The start of a model's instances: several at a time, in order, and nothing left of a start that failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from naiad.errors import ModelLoadError
from naiad.execution.model.startup import LEAST_AT_ONCE, start_all, start_one_by_one
from support.child_processes import children
from support.event_loops import run, until
from support.noted_requests import submit
from support.worker_models import ECHO, Caller, open_files, serving, write_model

WAIT_S = 10.0
FOUR = "instance_group { count: 4 kind: KIND_CPU }"
TWO = "instance_group { count: 2 kind: KIND_CPU }"


class Part:
    """An instance whose start is a function."""

    def __init__(self, begin: Callable[[Part], object]) -> None:
        self.work = begin
        self.stopped = threading.Event()
        self.begun = self.ended = False

    def start(self) -> None:
        self.begun = True
        try:
            self.work(self)
        finally:
            self.ended = True

    def stop(self) -> None:
        self.stopped.set()


def test_processes_start_at_the_same_time_up_to_a_bound() -> None:
    meeting = threading.Barrier(LEAST_AT_ONCE)
    lock, running, most = threading.Lock(), 0, 0

    def begin(part: Part) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        # Passes only when so many are here at once.
        meeting.wait(WAIT_S)
        with lock:
            running -= 1

    parts = [Part(begin) for _ in range(3 * LEAST_AT_ONCE)]
    start_all(parts, cores=2)
    assert all(part.ended for part in parts)
    assert most == LEAST_AT_ONCE


def test_more_cores_start_more_at_a_time() -> None:
    meeting = threading.Barrier(9)
    start_all([Part(lambda part: meeting.wait(WAIT_S)) for _ in range(9)], cores=9)


def test_the_first_error_wins_and_ends_the_other_starts() -> None:
    def fail(part: Part) -> None:
        raise ModelLoadError("the second has no file")

    def wait(part: Part) -> None:
        assert part.stopped.wait(WAIT_S)
        raise ModelLoadError("ended from outside")

    parts = [Part(wait), Part(fail), Part(wait), Part(wait), Part(wait), Part(wait)]
    with pytest.raises(ModelLoadError, match=r"^the second has no file$"):
        start_all(parts, cores=2)
    assert all(part.stopped.is_set() for part in parts)
    assert parts[1].ended
    assert [part.begun for part in parts] == [part.ended for part in parts]


def test_one_by_one_ends_at_the_first_error() -> None:
    begun: list[int] = []

    def begin(number: int) -> Callable[[Part], object]:
        def work(part: Part) -> None:
            begun.append(number)
            if number == 1:
                raise ModelLoadError("no")

        return work

    with pytest.raises(ModelLoadError):
        start_one_by_one([Part(begin(n)) for n in range(3)])
    assert begun == [0, 1]


# Instances that meet: each says that it is there and waits for the others.
MEETS = """
    def initialize(self, args):
        folder = args["model_repository"]
        open(os.path.join(folder, "here-" + args["model_instance_name"]), "w").close()
        deadline = time.monotonic() + 10
        while sum(name.startswith("here-") for name in os.listdir(folder)) < 4:
            assert time.monotonic() < deadline, "the others did not come"
            time.sleep(0.01)
"""


def test_python_models_start_together_and_keep_their_order(tmp_path: Path) -> None:
    write_model(tmp_path, MEETS + ECHO, FOUR)

    async def main() -> None:
        async with serving(tmp_path) as engine:
            model = engine.find("m", "")
            assert [i.name for i in model.instances] == ["m_0_0", "m_0_1", "m_0_2", "m_0_3"]
            callers = [Caller(n) for n in range(8)]
            submit(model, *callers)
            assert [(await c.outputs())["y"].tolist() for c in callers] == [[[n]] for n in range(8)]

    run(main())


def test_nothing_is_left_of_a_start_that_failed(tmp_path: Path) -> None:
    fails = """
    def initialize(self, args):
        if args["model_instance_name"].endswith("_2"):
            raise RuntimeError("the third has had enough")
        time.sleep(60)
    """
    write_model(tmp_path, fails, FOUR)

    async def main() -> None:
        begun, before = monotonic(), open_files()
        async with serving(tmp_path) as engine:
            (row,) = engine.index(ready_only=False)
            assert "the third has had enough" in row["reason"]
            assert children() == []
            await until(lambda: open_files() == before)
        assert monotonic() - begun < WAIT_S

    run(main())


@pytest.mark.slow
def test_an_instance_that_dies_while_others_start_gets_no_request(tmp_path: Path) -> None:
    dies = """
    def initialize(self, args):
        gone = os.path.join(args["model_repository"], "gone")
        if args["model_instance_name"].endswith("_0") and not os.path.exists(gone):
            import threading
            def end():
                time.sleep(0.2)
                open(gone, "w").close()
                os._exit(1)
            threading.Thread(target=end).start()
        elif args["model_instance_name"].endswith("_1"):
            deadline = time.monotonic() + 10
            while not os.path.exists(gone):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            # The server has to notice it first.
            time.sleep(0.2)
    """
    write_model(tmp_path, dies + ECHO, TWO)

    async def main() -> None:
        async with serving(tmp_path) as engine:
            model: Any = engine.find("m", "")
            callers = [Caller(n) for n in range(6)]
            submit(model, *callers)
            assert [(await c.outputs())["y"].tolist() for c in callers] == [[[n]] for n in range(6)]

    run(main())
