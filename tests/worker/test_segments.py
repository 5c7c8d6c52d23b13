"""Large tensors in shared memory: in place, given back, taken again, let go."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from naiad.worker.ipc import frames as p
from naiad.worker.ipc import segments
from naiad.worker.ipc.segments import SegmentPool, anonymous_file, size_class
from support.worker_peer import Child, Request, eventually, worker_of, write_execute, write_model

IDENTITY = """
return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
"""
BIG = np.arange(100_000, dtype=np.float32)


def give_back(child: Child, *numbers: int) -> None:
    child.send(p.RELEASE, 0, b"".join(p.NUMBERS.pack(n) for n in numbers))


def test_inputs_are_read_in_place_and_given_back_before_the_answer(tmp_path: Path) -> None:
    body = """
    requests[0].inputs()[0].as_numpy()[0] = 42
    return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy()[:3])]) for r in requests]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        segment = child.add_segment(3, BIG.nbytes + 100)
        child.add_segment(9, BIG.nbytes)
        for batch in range(3):
            child.released.clear()
            child.execute(batch, [Request({"IN": BIG}), Request({"IN": BIG})], segments=[3, 9])
            frame = child.expect(p.RESPONSES)
            assert sorted(child.released) == [3, 9]
            first, second = child.responses(frame)
            assert first.outputs["OUT"].tolist() == [42, 1, 2]
            assert second.outputs["OUT"].tolist() == [0, 1, 2]
            assert np.frombuffer(segment[:4], np.float32)[0] == 42


def test_an_input_that_the_model_keeps_is_not_given_back(tmp_path: Path) -> None:
    body = """
    self.kept = requests[0].inputs()[0].as_numpy()[5:7] if requests[0].request_id() == "keep" else None
    return [pb_utils.InferenceResponse([])]
    """
    with worker_of(write_execute(tmp_path, body)) as child:
        child.add_segment(1, BIG.nbytes)
        child.execute(1, [Request({"IN": BIG}, id="keep")], segments=[1])
        child.expect(p.RESPONSES)
        assert child.released == []
        child.run([Request({"IN": np.zeros(1)})])
        assert child.released == [1]


def test_an_input_is_given_back_after_a_failure(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, "a = requests[0].inputs()[0].as_numpy()\nraise RuntimeError('x')")) as child:
        child.add_segment(1, BIG.nbytes)
        child.execute(1, [Request({"IN": BIG})], segments=[1])
        child.expect(p.DONE)
        child.send(p.PING, 1)
        child.expect(p.PONG)
        assert child.released == [1]


def test_a_dropped_segment_is_unmapped(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, IDENTITY)) as child:
        before = mappings(child)
        child.add_segment(1, BIG.nbytes)
        child.execute(1, [Request({"IN": BIG[:10]})], segments=[1])
        child.expect(p.RESPONSES)
        assert mappings(child) == before + 1
        child.send(p.DROP_SEGMENT, 1)
        child.run([Request({"IN": np.zeros(1)})])
        # Large ones by a thread.
        eventually(lambda: mappings(child) == before, "the segment is unmapped")


def mappings(child: Child) -> int:
    """How many segments the child has mapped."""
    return Path(f"/proc/{child.process.pid}/maps").read_text().count("memfd:")


def test_outputs_lie_in_segments_that_are_used_again(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, IDENTITY)) as child:
        used = []
        for batch in range(5):
            (response,) = child.run([Request({"IN": BIG + batch})], batch)
            np.testing.assert_array_equal(response.outputs["OUT"], BIG + batch)
            used += response.segments
            give_back(child, *response.segments)
        assert used == [1] * 5
        first, second = child.run([Request({"IN": BIG}), Request({"IN": BIG * 2})])
        assert {*first.segments, *second.segments} == {1, 2}
        np.testing.assert_array_equal(first.outputs["OUT"], BIG)
        np.testing.assert_array_equal(second.outputs["OUT"], BIG * 2)


@pytest.mark.slow
def test_segments_that_come_back_while_the_model_runs_are_used(tmp_path: Path) -> None:
    model = write_execute(
        tmp_path,
        f"""
        s = requests[0].get_response_sender()
        for i in range(20):
            s.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full(50_000, i))]))
            while not os.path.exists(f"{tmp_path}/back-{{i}}"):
                time.sleep(0.001)
        s.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        """,
    )
    with worker_of(model, decoupled=True) as child:
        child.execute(1, [Request({"IN": np.zeros(1)})])
        used = set()
        for i in range(20):
            (response,) = child.responses(child.expect(p.RESPONSE))
            assert (response.outputs["OUT"] == i).all()
            used.add(response.segments[0])
            give_back(child, *response.segments)
            child.send(p.PING, i)
            child.expect(p.PONG)
            (tmp_path / f"back-{i}").touch()
        assert len(used) <= 2


@pytest.mark.slow
def test_segments_that_nobody_needs_are_let_go(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, IDENTITY)) as child:
        before = mappings(child)
        responses = child.run([Request({"IN": BIG})] * 3)
        give_back(child, *(n for r in responses for n in r.segments))
        started = time.monotonic()
        while len(child.dropped) < 3:
            child.send(p.PING, 1)
            child.expect(p.PONG)
            time.sleep(0.02)
            assert time.monotonic() - started < 10
        assert time.monotonic() - started > segments.KEEP_FREE_S - 1
        eventually(lambda: mappings(child) == before, "the segments are still mapped")
        assert child.run([Request({"IN": BIG})])[0].segments == [4]


def test_nothing_is_left_open(tmp_path: Path) -> None:
    with worker_of(write_execute(tmp_path, IDENTITY)) as child:
        child.run([Request({"IN": BIG})])
        descriptors = f"/proc/{child.process.pid}/fd"
        before = len(os.listdir(descriptors))
        for number in range(1, 30):
            child.add_segment(number, 1000 + number)
            child.send(p.DROP_SEGMENT, number)
        child.run([Request({"IN": np.zeros(1)})])
        assert len(os.listdir(descriptors)) == before


def test_without_shared_memory_large_tensors_travel_in_frames(tmp_path: Path) -> None:
    source = """
    import naiad_worker.ipc.segments
    def fails(size):
        raise OSError("none left")
    naiad_worker.ipc.segments.anonymous_file = fails
    class TritonPythonModel:
        def execute(self, requests):
            return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", r.inputs()[0].as_numpy())]) for r in requests]
    """
    with worker_of(write_model(tmp_path, source)) as child:
        for _ in range(2):
            (response,) = child.run([Request({"IN": BIG})])
            np.testing.assert_array_equal(response.outputs["OUT"], BIG)
            assert response.segments == []
        (line,) = [f.json for f in child.aside if f.kind == p.LOG]
        assert line["level"] == "WARNING"
        assert "none left" in line["message"]


@pytest.fixture
def without_memory(monkeypatch: pytest.MonkeyPatch) -> segments.Notice:
    """A system whose memory has a name always; what is told about it."""

    def refused(name: str) -> int:
        raise OSError("not here")

    monkeypatch.setattr(os, "memfd_create", refused)
    monkeypatch.setattr(segments, "notice", segments.Notice())
    return segments.notice


def test_a_file_takes_the_place_of_memory(without_memory: segments.Notice) -> None:
    for _ in range(2):
        descriptor = anonymous_file(5000)
        try:
            assert os.fstat(descriptor).st_size == 5000
            assert os.fstat(descriptor).st_nlink == 0
            assert os.readlink(f"/proc/self/fd/{descriptor}").startswith("/dev/shm/")
            # Not a hole: a full disk shows now, and not when the tensor is written.
            assert os.fstat(descriptor).st_blocks * 512 >= 5000
        finally:
            os.close(descriptor)
    assert "(not here)" in without_memory.take()
    assert without_memory.take() == ""


def test_a_file_lies_elsewhere_when_there_is_no_room(
    without_memory: segments.Notice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.posix_fallocate
    full = ["/dev/shm"]

    def fallocate(descriptor: int, offset: int, size: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith(tuple(full)):
            raise OSError(28, "No space left on device")
        real(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", fallocate)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    descriptor = anonymous_file(5000)
    assert os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(tmp_path))
    os.close(descriptor)
    before = len(os.listdir("/proc/self/fd"))
    full.append(str(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        anonymous_file(5000)
    assert len(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []


def test_size_classes() -> None:
    for size in (1, 4096, 4097, 32768, 40000, 10_000_000, 2**33 + 1):
        capacity = size_class(size)
        assert capacity % 4096 == 0
        assert size <= capacity <= max(1.25 * size, 4096 + size)


def test_the_pool_ignores_what_it_does_not_know() -> None:
    pool = SegmentPool()
    segment = pool.take(5000)
    segment.close_descriptor()
    assert pool.is_waiting
    pool.release([77, segment.number, segment.number])
    assert pool.has_free(5000)
    assert not pool.is_waiting
    assert pool.take(6000) is segment


def test_a_larger_segment_that_is_free_is_taken_rather_than_a_new_one() -> None:
    pool = SegmentPool()
    segments = [pool.take(size) for size in (40_000, 160_000, 640_000)]
    for segment in segments:
        segment.close_descriptor()
    pool.release([segment.number for segment in segments])
    # The smallest that will do, and none of more than four times the size.
    assert pool.take(50_000) is segments[1]
    assert pool.take(40_000) is segments[0]
    assert not pool.has_free(100_000)
    assert pool.take(200_000) is segments[2]
