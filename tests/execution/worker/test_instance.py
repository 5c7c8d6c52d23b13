"""Instances that are processes: what a child may do, on purpose or not, and what must not follow from it."""

from __future__ import annotations

import asyncio
import gc
import signal
import textwrap
from pathlib import Path
from time import monotonic, process_time
from typing import Any

import numpy as np
import pytest

from naiad.errors import NaiadError, UnavailableError
from naiad.request import RequestOptions
from naiad.worker.ipc import segments
from support.event_loops import WAIT_S, run, until
from support.noted_requests import submit
from support.worker_models import (
    ECHO,
    Caller,
    children,
    mapped_segments,
    open_files,
    play,
    process_of,
    serving,
    write_model,
)

PLAIN_ECHO = textwrap.dedent(ECHO)
BATCHING = "dynamic_batching { max_queue_delay_microseconds: 20000 }"


def test_echo(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        caller = Caller([1, 2, 3])
        submit(model, caller)
        assert (await caller.outputs())["y"].tolist() == [[1, 2, 3]]
        big = Caller(np.arange(300_000))
        submit(model, big)
        assert (await big.outputs())["y"].tolist()[0][-1] == 299_999

    play(tmp_path, test)


def test_long_id(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        long, next_one = Caller(1, id="i" * 70_000), Caller(2)
        with pytest.raises(NaiadError, match="70000"):
            submit(model, long)
        submit(model, next_one)
        assert (await next_one.outputs())["y"].tolist() == [[2]]

    play(tmp_path, test)


def test_forms_run_out_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        for _ in range(350):
            callers = [Caller(n) for n in range(3)]
            submit(model, *callers)
            for n, caller in enumerate(callers):
                assert (await caller.outputs())["y"].tolist() == [[n]]

    play(tmp_path, test, more=BATCHING.replace("20000", "0"))


def test_prints_a_lot_while_it_starts(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, caller := Caller(2))
        await caller.outputs()

    methods = "def initialize(self, args):\n    sys.stdout.write(('word ' * 20 + '\\n') * 5000)\n" + PLAIN_ECHO
    play(tmp_path, test, methods, **{"stub-timeout-seconds": "8"})


@pytest.mark.slow
def test_closed_stdout_costs_nothing(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, caller := Caller(2))
        await caller.outputs()
        begun = process_time()
        await asyncio.sleep(1)
        assert process_time() - begun < 0.3

    methods = "def initialize(self, args):\n    os.close(1); os.close(2)\n" + PLAIN_ECHO
    play(tmp_path, test, methods)


def test_garbage_from_the_child(tmp_path: Path) -> None:
    """A child that says nonsense is ended; its requests fail."""

    async def test(model: Any) -> None:
        first = process_of(model).pid
        submit(model, caller := Caller(2))
        assert isinstance(await caller.error(), UnavailableError)
        await until(lambda: first not in children())

    methods = """
    def execute(self, requests):
        import gc, socket
        for thing in gc.get_objects():
            if isinstance(thing, socket.socket):
                import struct
                thing.sendall(struct.pack("<IIQ", 36, 12, 2) + struct.pack("<III", 5, 0, 0))
        time.sleep(60)
    """
    play(tmp_path, test, methods)


def test_rescheduled_when_decoupled(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, caller := Caller(2))
        await asyncio.wait_for(caller.done.wait(), 30)
        assert [p[0]["y"].tolist() for p in caller.parts if p[0] is not None] == [[[2]]]

    methods = """
    seen = 0
    def execute(self, requests):
        for request in requests:
            self.seen += 1
            if self.seen < 3:
                request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
                continue
            x = pb_utils.get_input_tensor_by_name(request, "x").as_numpy()
            sender = request.get_response_sender()
            response = pb_utils.InferenceResponse([pb_utils.Tensor("y", x)])
            sender.send(response, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None
    """
    play(tmp_path, test, methods, "model_transaction_policy { decoupled: true }")


@pytest.mark.slow
def test_crash_loop_answers_what_waits(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        (tmp_path / "broken").touch()
        process_of(model).kill()
        await until(lambda: model.problem)
        submit(model, caller := Caller(2))
        assert isinstance(await caller.error(), UnavailableError)
        with pytest.raises(UnavailableError, match="broken"):
            submit(model, Caller(2))
        (tmp_path / "broken").unlink()
        await until(lambda: not model.problem)
        submit(model, caller := Caller(2))
        await caller.outputs()

    methods = (
        f"def initialize(self, args):\n    assert not os.path.exists({str(tmp_path / 'broken')!r}), 'broken'\n"
        + PLAIN_ECHO
    )
    play(tmp_path, test, methods)


@pytest.mark.slow
def test_killed_and_back(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        before = open_files()
        for _ in range(3):
            process_of(model).kill()
            await until(lambda: model.problem)
            await until(lambda: not model.problem)
            submit(model, caller := Caller(2))
            await caller.outputs()
        assert len(open_files()) == len(before), (before, open_files())

    play(tmp_path, test)


@pytest.mark.slow
def test_forked_grandchild_keeps_the_pipe(tmp_path: Path) -> None:
    """The child dies; a program that it started lives on and prints for ever."""

    async def test(model: Any) -> None:
        process_of(model).kill()
        await until(lambda: model.problem)
        await until(lambda: not model.problem)

    methods = (
        "def initialize(self, args):\n    import subprocess\n    subprocess.Popen(['timeout', '5', 'yes'])\n"
        + PLAIN_ECHO
    )
    play(tmp_path, test, methods)


def test_last_words_without_newline(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, caller := Caller(2))
        assert "last words" in str(await caller.error())
        assert "exit code 3" in str(await caller.error())

    play(tmp_path, test, "def execute(self, requests):\n    sys.stderr.write('last words')\n    os._exit(3)\n")


@pytest.mark.slow
def test_unsent_descriptors_are_closed(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        before = len(open_files())
        process_of(model).send_signal(signal.SIGSTOP)
        callers = [Caller(np.arange(100_000)) for _ in range(6)]
        submit(model, *callers)
        small = [Caller(np.arange(8000)) for _ in range(8)]
        submit(model, *small)
        await asyncio.sleep(0.2)
        process_of(model).kill()
        for caller in callers[:1]:
            assert isinstance(await caller.error(), UnavailableError)
        for caller in (*callers, *small):
            await asyncio.wait_for(caller.done.wait(), 30)
        await until(lambda: not model.problem)
        assert len(open_files()) <= before + 8, open_files()

    play(tmp_path, test, more=BATCHING)


@pytest.mark.slow
def test_large_frames_are_not_quadratic(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        begun = monotonic()
        submit(model, caller := Caller(np.arange(10)))
        outputs = await caller.outputs(20)
        assert outputs["y"].shape == (1, 25_000_000)
        assert monotonic() - begun < 10, monotonic() - begun

    methods = """
    def execute(self, requests):
        def fail(size):
            raise OSError(28, "no")
        from naiad_worker.ipc import segments
        segments.anonymous_file = fail
        y = pb_utils.Tensor("y", np.zeros((1, 25_000_000), np.float32))
        return [pb_utils.InferenceResponse([y])]
    """
    play(tmp_path, test, methods)


@pytest.mark.slow
def test_stopped_child_is_replaced(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        pid = process_of(model).pid
        process_of(model).send_signal(signal.SIGSTOP)
        submit(model, caller := Caller(2))
        assert isinstance(await caller.error(), UnavailableError)
        await until(lambda: not model.problem)
        assert process_of(model).pid != pid

    play(tmp_path, test, **{"stub-timeout-seconds": "4"})


def test_is_ready_of_the_model(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        await until(lambda: model.problem)

    methods = "def is_ready(self):\n    return False\n" + PLAIN_ECHO
    play(tmp_path, test, methods)


def test_cancel_reaches_the_model(tmp_path: Path) -> None:
    async def test(model: Any) -> None:
        submit(model, caller := Caller(2))
        await until(lambda: model.statistics.pending == 0)
        model.cancel(caller)
        assert "gave up" in str(await caller.error())

    methods = """
    def execute(self, requests):
        end = time.monotonic() + 8
        while time.monotonic() < end and not requests[0].is_cancelled():
            time.sleep(0.01)
        raise RuntimeError("gave up" if requests[0].is_cancelled() else "not told")
    """
    play(tmp_path, test, methods)


def test_refused_batch_leaves_the_channel_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no memory for the second tensor; the next request finds everything in order."""

    async def test(model: Any) -> None:
        real, calls = segments.anonymous_file, []

        def failing(size: int) -> int:
            calls.append(size)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            return real(size)

        monkeypatch.setattr(segments, "anonymous_file", failing)
        options = RequestOptions(("y",), 1, (("x", (100_000,)),))
        pair = [Caller(np.arange(100_000), options), Caller(np.arange(100_000), options)]
        submit(model, *pair)
        for caller in pair:
            await asyncio.wait_for(caller.done.wait(), WAIT_S)
        for _ in range(3):
            again = [Caller(np.arange(100_000), options), Caller(np.arange(100_000), options)]
            submit(model, *again)
            for caller in again:
                assert (await caller.outputs())["y"][0, -1] == 99_999

    play(tmp_path, test, more=BATCHING)


@pytest.mark.slow
def test_unload_while_starting_again(tmp_path: Path) -> None:
    """The end does not wait for a model that takes long to start again."""
    begun = 0.0

    async def test(model: Any) -> None:
        nonlocal begun
        (tmp_path / "slow").touch()
        process_of(model).kill()
        await until(lambda: (tmp_path / "began").exists(), 5)
        begun = monotonic()

    methods = (
        f"""
def initialize(self, args):
    if os.path.exists({str(tmp_path / "slow")!r}):
        open({str(tmp_path / "began")!r}, "w").close()
        time.sleep(20)
"""
        + PLAIN_ECHO
    )
    play(tmp_path, test, methods)
    assert monotonic() - begun < 10


@pytest.mark.slow
def test_rounds(tmp_path: Path) -> None:
    write_model(tmp_path)

    async def main() -> None:
        counts = []
        for _ in range(6):
            async with serving(tmp_path) as engine:
                model = engine.find("m", "")
                submit(model, caller := Caller(np.arange(50_000)))
                await caller.outputs()
                del caller, model
            counts.append(len(open_files()))
        assert counts[-1] == counts[1], counts

    run(main())


@pytest.mark.slow
def test_segments_come_back(tmp_path: Path) -> None:
    gc.collect()
    before = mapped_segments()

    async def test(model: Any) -> None:
        for n in range(200):
            submit(model, caller := Caller(np.full(150_000, n)))
            assert (await caller.outputs())["y"][0, 5] == n
        del caller
        assert mapped_segments() <= before + 6
        await until(lambda: mapped_segments() <= before, 10)

    play(tmp_path, test)


@pytest.mark.slow
def test_kill_during_load_of_many(tmp_path: Path) -> None:
    """One of several instances cannot start: nothing is left."""
    methods = (
        """
def initialize(self, args):
    assert not args["model_instance_name"].endswith("_2"), "third"
"""
        + PLAIN_ECHO
    )
    write_model(tmp_path, methods, "instance_group { count: 4 kind: KIND_CPU }")

    async def main() -> None:
        async with serving(tmp_path) as engine:
            assert "third" in engine.not_ready()[0]
            await until(lambda: children() == [])

    run(main())
