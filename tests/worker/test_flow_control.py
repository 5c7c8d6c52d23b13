"""Callers who do not take their responses: who has to wait in the process of a model, and for how long."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from naiad.worker.ipc import frames as p
from support.worker_peer import WAIT_S, Child, Request, worker_of, write_execute

FINAL = "flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL"
# Sends until it is told to stop, with a pause so that the test can keep up.
SENDS = f"""
def send(r):
    s, n = r.get_response_sender(), 0
    while not s.is_cancelled() and n < 2000:
        time.sleep(0.001)
        s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([n], np.int32))]))
        n += 1
    s.send({FINAL})
"""
IN_THREADS = SENDS + "for r in requests: threading.Thread(target=send, args=(r,), daemon=True).start()\n"
IN_EXECUTE = SENDS + "for r in requests: send(r)\n"
ASKS_FOR_NOTHING = Request({"N": np.array([0], np.int32)})
FOREVER_MS = 1_000_000


def hold(child: Child, request: int, backpressure_timeout_ms: int = FOREVER_MS) -> None:
    child.send(p.PAUSE, request, p.NUMBERS.pack(backpressure_timeout_ms))


def until_held(child: Child, held: int, other: int = 0) -> None:
    """Take responses until none of the held request comes for a while, during which those of ``other`` go on."""
    last = time.monotonic()
    deadline = last + WAIT_S
    while time.monotonic() - last < 0.3:
        assert time.monotonic() < deadline, "it is not held"
        if other:
            frame = child.expect(p.RESPONSE, p.DONE, p.PONG)
            last = time.monotonic() if frame.number == held else last
            continue
        child.connection.settimeout(0.3)
        try:
            child.expect(p.RESPONSE, p.DONE, p.PONG)
            last = time.monotonic()
        except TimeoutError:
            return
        finally:
            child.connection.settimeout(WAIT_S)


@pytest.mark.parametrize("freed_by", [p.RESUME, p.CANCEL])
def test_a_thread_of_the_models_own_waits(tmp_path: Path, freed_by: int) -> None:
    with worker_of(write_execute(tmp_path, IN_THREADS), decoupled=True) as child:
        child.execute(1, [ASKS_FOR_NOTHING, ASKS_FOR_NOTHING])
        hold(child, 1, 0)
        # The other request is not held up.
        until_held(child, 1, other=2)
        child.send(freed_by, 1)
        child.send(p.CANCEL, 2)
        seen = []
        while True:
            frame = child.expect(p.RESPONSE, p.DONE)
            if frame.number == 1:
                seen += child.responses(frame)
                if len(seen) > 50 or seen[-1].final:
                    break
        assert seen[-1].final == (freed_by == p.CANCEL)
        # One response was on its way, perhaps.
        assert len(seen) <= 2 if freed_by == p.CANCEL else len(seen) > 50


@pytest.mark.slow
def test_the_main_thread_waits_for_as_long_as_it_is_told(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, IN_EXECUTE), decoupled=True) as child:
        child.execute(1, [ASKS_FOR_NOTHING])
        child.expect(p.RESPONSE)
        hold(child, 1, 600)
        until_held(child, 1)
        # It goes on by itself, and does not wait again for the same hold.
        for _ in range(100):
            child.expect(p.RESPONSE)
        hold(child, 1)
        until_held(child, 1)
        child.send(p.RESUME, 1)
        child.expect(p.RESPONSE)
        child.send(p.CANCEL, 1)
        while not child.responses(child.expect(p.RESPONSE))[0].final:
            pass


@pytest.mark.slow
def test_a_loop_does_not_wait(tmp_path: Path) -> None:
    model = write_execute(tmp_path, "")
    model.write_text(
        "import asyncio\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
        "class TritonPythonModel:\n"
        "    async def execute(self, requests):\n"
        "        s = requests[0].get_response_sender()\n"
        "        for n in range(300):\n"
        "            await asyncio.sleep(0.001)\n"
        '            s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([n], np.int32))]))\n'
        f"        s.send({FINAL})\n"
    )
    with worker_of(model, decoupled=True) as child:
        child.execute(1, [ASKS_FOR_NOTHING])
        hold(child, 1)
        count = 0
        while not child.responses(child.expect(p.RESPONSE, p.DONE))[0].final:
            count += 1
        assert count == 300


def test_a_hold_that_comes_too_late_means_nothing(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, IN_EXECUTE), decoupled=True) as child:
        for request in (7, 8, 7):
            hold(child, request)
        child.send(p.RESUME, 9)
        child.send(p.CANCEL, 7)
        child.execute(1, [ASKS_FOR_NOTHING])
        child.expect(p.RESPONSE)
        child.send(p.CANCEL, 1)
        while not child.responses(child.expect(p.RESPONSE))[0].final:
            pass


def test_a_thread_sends_no_more_than_the_server_has_taken_in(tmp_path: Path) -> None:
    body = f"""
    s = requests[0].get_response_sender()
    for n in range(40):
        s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.zeros(100_000, np.uint8))]))
    s.send({FINAL})
    """
    with worker_of(write_execute(tmp_path, body), decoupled=True) as child:
        child.execute(1, [ASKS_FOR_NOTHING])
        responses = 0
        while not child.responses(child.expect(p.RESPONSE))[0].final:
            responses += 1
            # One more for about each megabyte.
            assert child.caught_up == (responses - 1) // 11
        assert (responses, child.caught_up) == (40, 3)
