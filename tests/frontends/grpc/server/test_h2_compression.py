"""Compressed requests and answers, small ones at once and large ones off the loop."""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from collections.abc import Callable

import pytest
from h2.settings import SettingCodes

from naiad.frontends.grpc.rpc.call import RpcCall
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.inference.offload import OFF_LOOP_BYTES
from support.event_loops import until
from support.h2_application import Application
from support.h2_frames import data_frame, message, numbered
from support.h2_peer import ENDINGS, HOUR, Peer, RawPeer, run

MEGABYTE = 1 << 20
GIVING_UP = pytest.mark.parametrize("give_up", ENDINGS)


# Compression


def packed(body: bytes, encoding: str) -> bytes:
    return message(gzip.compress(body) if encoding == "gzip" else zlib.compress(body), 1)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("size", [0, 1, 1000, 2 * MEGABYTE])
@pytest.mark.parametrize("path", ["/Echo", "/Talk"])
def test_compressed_requests(path: str, size: int, encoding: str) -> None:
    async def test() -> None:
        peer = Peer()
        peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
        body = numbered(size // 2) + bytes(size // 2)
        import os

        body += os.urandom(size // 10)
        stream_id = peer.call(path, ("grpc-encoding", encoding))
        parts = [body, b"plain", body] if path == "/Talk" else [body]
        raw = b"".join(packed(part, encoding) if part != b"plain" else message(part) for part in parts)
        peer.data(stream_id, raw, end=True)
        answer = await peer.answer(stream_id)
        assert answer.status == 0
        assert answer.messages == parts
        peer.leaves_nothing()

    run(test())


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize(
    ("size", "off_loop"), [(OFF_LOOP_BYTES, False), (OFF_LOOP_BYTES + 1, True), (40 * MEGABYTE, True)]
)
def test_what_grows_large_grows_off_the_loop(size: int, off_loop: bool, encoding: str) -> None:
    """However small it came: the call is answered later, and others meanwhile."""

    async def test() -> None:
        peer = RawPeer()
        raw = packed(bytes(size), encoding)
        assert len(raw) < OFF_LOOP_BYTES
        began = time.thread_time()
        peer.send(peer.open(1, "/Later", more=[("grpc-encoding", encoding)]) + data_frame(1, raw, True))
        assert time.thread_time() - began < 0.5
        assert [len(waiting.body) for waiting in peer.application.waiting] == ([] if off_loop else [size])
        assert peer.serves(3)
        await until(lambda: bool(peer.application.waiting))
        assert peer.application.waiting[0].body == bytes(size)
        peer.application.waiting[0].call.reply((b"",), 0)
        await peer.turn()
        assert peer.status(1) == (0, "")
        peer.leaves_nothing()

    run(test())


@pytest.mark.parametrize("size", [100, 300_000])
def test_compressed_requests_that_are_damaged(size: int) -> None:
    import os

    async def test() -> None:
        for damaged in (packed(os.urandom(size), "gzip")[5:-9], b"\0" * size, packed(os.urandom(size), "deflate")[5:]):
            peer = Peer()
            answer = peer.call("/Echo", ("grpc-encoding", "gzip"))
            peer.data(answer, message(damaged, 1), end=True)
            found = await peer.answer(answer)
            assert found.status == 13
            assert "gzip" in found.text
            await peer.works()
            peer.leaves_nothing()

    run(test())


@pytest.mark.slow
@pytest.mark.parametrize("size", [900_000, 300 * MEGABYTE])
def test_compressed_requests_that_grow_too_large(size: int) -> None:
    async def test() -> None:
        peer = Peer(GrpcLimits(max_message_bytes=800_000))
        stream_id = peer.call("/Echo", ("grpc-encoding", "gzip"))
        peer.data(stream_id, packed(bytes(size), "gzip"), end=True)
        found = await peer.answer(stream_id)
        assert found.status == 8
        assert "800000" in found.text
        await peer.works()
        peer.leaves_nothing()

    run(test())


@pytest.mark.slow
@GIVING_UP
def test_giving_up_while_a_message_is_being_decompressed(give_up: Callable[[RawPeer], None]) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Listen", more=[("grpc-encoding", "gzip"), *HOUR]))
        peer.send(data_frame(1, packed(bytes(100 * MEGABYTE), "gzip") + message(b"behind"), True))
        listening = peer.application.conversations[0]
        assert listening.messages == []
        give_up(peer)
        assert listening.cancelled == 1
        done = peer.service.worker.submit(lambda: None)
        await until(done.done)
        await peer.turn()
        assert listening.messages == []
        assert not listening.ended
        peer.leaves_nothing()

    run(test())


@pytest.mark.slow
def test_a_call_is_granted_nothing_while_a_message_is_being_decompressed() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Listen", more=[("grpc-encoding", "gzip")]))
        peer.send(data_frame(1, packed(bytes(100 * MEGABYTE), "gzip")))
        for _ in range(7):
            peer.deliver(data_frame(1, message(bytes(MEGABYTE - 100))))
        assert peer.of("WindowUpdate", 1) == []
        assert peer.service.partial_bytes > 6 * MEGABYTE
        peer.send(data_frame(1, b"", True))
        listening = peer.application.conversations[0]
        await until(lambda: listening.ended)
        assert list(map(len, listening.messages)) == [100 * MEGABYTE] + [MEGABYTE - 100] * 7
        listening.call.finish()
        await peer.turn()
        peer.leaves_nothing()

    run(test())


def unpacked(answer: bytes) -> list[tuple[int, bytes]]:
    found = []
    while answer:
        flag, size = struct.unpack_from(">BI", answer)
        body, answer = answer[5 : 5 + size], answer[5 + size :]
        found.append((flag, gzip.decompress(body) if flag else body))
    return found


@pytest.mark.parametrize("level", ["low", "medium", "high"])
@pytest.mark.parametrize("size", [0, 255, 256, 5000, 70_000, 3_000_000])
def test_compressed_answers(size: int, level: str) -> None:
    async def test() -> None:
        peer = Peer(GrpcLimits(compression_level=level))
        body = numbered(size)
        answer = await peer.ask("/Packed", body, ("grpc-accept-encoding", "gzip"))
        assert answer.headers["grpc-encoding"] == "gzip"
        assert unpacked(bytes(answer.data)) == [(int(size >= 256), body)]
        assert answer.status == 0
        answer = await peer.ask("/Packed", body, ("grpc-accept-encoding", "br"))
        assert "grpc-encoding" not in answer.headers
        assert answer.messages == [body]
        answer = await peer.ask("/Echo", body, ("grpc-accept-encoding", "gzip"))
        assert answer.messages == [body]
        peer.leaves_nothing()

    run(test())


class PackedTalk(Application):
    """``/PackedLater`` streams, compressed."""

    def methods(self):  # type: ignore[no-untyped-def]
        from naiad.frontends.grpc.rpc.call import Streaming

        return {**super().methods(), "/PackedListen": Streaming(self.listen, compressed=True)}


def listening_packed(peer: Peer) -> tuple[int, RpcCall]:
    stream_id = peer.call("/PackedListen", ("grpc-accept-encoding", "gzip"))
    return stream_id, peer.application.conversations[-1].call


@pytest.mark.parametrize("code", [0, 3])
def test_compressed_answers_keep_their_order(code: int) -> None:
    async def test() -> None:
        peer = Peer(GrpcLimits(compression_level="low"), application=PackedTalk())
        stream_id, call = listening_packed(peer)
        bodies = [numbered(size) for size in (500_000, 3, 1000, 200_000, 0, 100_000)]
        for body in bodies:
            call.send((body,), len(body))
        call.finish(0, "")
        assert call.ended
        answer = await peer.answer(stream_id)
        assert [body for _, body in unpacked(bytes(answer.data))] == bodies
        assert answer.status == 0
        # An error does not wait for what is not compressed yet.
        stream_id, call = listening_packed(peer)
        call.send((bodies[1],), 3)
        call.send((bodies[0],), 500_000)
        call.finish(code, "text" if code else "")
        answer = await peer.answer(stream_id)
        assert answer.status == code
        found = [body for _, body in unpacked(bytes(answer.data))]
        assert found == (bodies[1:2] if code else [bodies[1], bodies[0]])
        await peer.works()
        peer.leaves_nothing()

    run(test())


def test_a_caller_that_goes_away_while_its_answer_is_compressed() -> None:
    async def test() -> None:
        peer = Peer(GrpcLimits(compression_level="low"), application=PackedTalk())
        for finished in (True, False):
            stream_id, call = listening_packed(peer)
            for _ in range(3):
                call.send((numbered(500_000),), 500_000)
            if finished:
                call.finish()
            peer.h2.reset_stream(stream_id, 8)
            peer.push()
            assert call.ended
            assert peer.application.conversations[-1].cancelled == int(not finished)
            done = peer.service.worker.submit(lambda: None)
            await until(done.done)
            await peer.settle()
            assert not peer.answers[stream_id].data
            peer.leaves_nothing()
        await peer.works()

    run(test())


def test_a_finished_call_takes_no_message_while_its_answer_is_compressed() -> None:
    async def test() -> None:
        peer = Peer(GrpcLimits(compression_level="low"), application=PackedTalk())
        stream_id = peer.call("/Packed", ("grpc-accept-encoding", "gzip"))
        peer.data(stream_id, message(numbered(50_000) * 2))
        peer.data(stream_id, message(b"a second one"), end=True)
        answer = await peer.answer(stream_id)
        assert [body for _, body in peer.application.seen] == [numbered(50_000) * 2]
        assert unpacked(bytes(answer.data)) == [(1, numbered(50_000) * 2)]
        other, call = listening_packed(peer)
        call.send((numbered(500_000),), 500_000)
        call.finish()
        peer.data(other, message(b"late"), end=True)
        assert peer.application.conversations[-1].messages == []
        assert not peer.application.conversations[-1].ended
        assert (await peer.answer(other)).status == 0
        peer.leaves_nothing()

    run(test())
