"""What services may rely on about a call of our own HTTP/2, whatever the caller does."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable

import pytest

from naiad.frontends.grpc.rpc.call import Body, RpcCall
from naiad.frontends.grpc.rpc.limits import GrpcLimits
from naiad.frontends.grpc.server.h2_call import CONGESTED_BYTES
from support.event_loops import until
from support.h2_application import Application
from support.h2_frames import HEADERS, RST, SETTINGS, WINDOW, data_frame, frame, message, numbered
from support.h2_peer import ENDINGS, HOUR, Peer, RawPeer, deadline, lost, protocol_error, reset, run, stream_error

MEGABYTE = 1 << 20


# Giving up


GIVING_UP = pytest.mark.parametrize("give_up", ENDINGS)


@GIVING_UP
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("path", ["/Later", "/Listen"])
def test_the_owner_hears_once_that_nobody_waits(path: str, ended: bool, give_up: Callable[[RawPeer], None]) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, path, more=HOUR) + data_frame(1, message(b"x"), ended))
        call = (peer.application.waiting or peer.application.conversations)[0].call
        owner = peer.application.waiting[0].owner if path == "/Later" else peer.application.conversations[0]
        assert not call.ended
        assert owner.cancelled == 0
        give_up(peer)
        assert call.ended
        assert owner.cancelled == 1
        assert call.owner is None
        for other in (reset, stream_error, deadline, protocol_error, lost):
            other(peer)
        await peer.turn()
        assert owner.cancelled == 1
        peer.leaves_nothing()

    run(test())


@GIVING_UP
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("path", ["/Later", "/Listen"])
def test_the_owner_of_a_finished_call_hears_nothing(path: str, waits: bool, give_up: Callable[[RawPeer], None]) -> None:
    async def test() -> None:
        peer = RawPeer()
        if waits:
            peer.send(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
        peer.send(peer.open(1, path, more=HOUR) + data_frame(1, message(b"x")))
        call = (peer.application.waiting or peer.application.conversations)[0].call
        owner = peer.application.waiting[0].owner if path == "/Later" else peer.application.conversations[0]
        call.send((b"answer",), 6)
        call.finish()
        assert call.ended
        await peer.turn()
        give_up(peer)
        peer.lose()
        assert owner.cancelled == 0
        peer.leaves_nothing()

    run(test())


@GIVING_UP
def test_an_owner_that_raises_harms_nobody(
    give_up: Callable[[RawPeer], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, more=HOUR) + data_frame(1, message(b"x")) + peer.unary(3))
        first, second = peer.application.waiting
        first.owner.raises = True
        with caplog.at_level(logging.ERROR):
            give_up(peer)
        assert first.owner.cancelled == 1
        if peer.core.failed or peer.connection.lost:
            assert second.owner.cancelled == 1
        else:
            second.call.reply((b"fine",), 4)
            await peer.turn()
            assert peer.status(3) == (0, "")
            assert peer.serves(5)
        assert "boom" in caplog.text

    run(test())


@pytest.mark.parametrize("path", ["/Later", "/Listen"])
@pytest.mark.parametrize("how", ["finished", "failed", "replied", "reset", "lost"])
def test_after_the_end_nothing_does_anything(path: str, how: str) -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, path) + data_frame(1, message(b"x"), how == "replied"))
        call = (peer.application.waiting or peer.application.conversations)[0].call
        endings = {
            "finished": call.finish,
            "failed": lambda: call.finish(3, "wrong"),
            "replied": lambda: call.reply((b"y",), 1),
            "reset": lambda: reset(peer),
            "lost": peer.lose,
        }
        endings[how]()
        await peer.turn()
        before = len(peer.read())
        for _ in range(2):
            call.reply((b"late",), 4)
            call.send((b"late",), 4)
            call.finish(5, "late")
            call.pause()
            call.resume()
            await peer.turn()
        assert len(peer.read()) == before
        assert call.ended
        assert not call.congested
        if how != "lost":
            assert peer.serves(3)
        peer.leaves_nothing()

    run(test())


# Handlers that raise


def raises(*arguments: object) -> None:
    raise RuntimeError("boom")


@pytest.mark.parametrize("how", ["/Fail", "/FailOpen", "/FailReceive", "end", "drained", "receive later", "stop"])
def test_a_handler_that_raises_ends_its_own_call(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        peer = RawPeer()
        path = how if how.startswith("/") else "/Listen"
        with caplog.at_level(logging.ERROR):
            peer.send(peer.unary(3))
            if how == "receive later":
                peer.application.on_message = raises
                peer.send(peer.open(5, path))
                peer.application.conversations[0].call.pause()
                peer.send(data_frame(5, message(b"x")))
                peer.application.conversations[0].call.resume()
            elif how == "end":
                peer.send(peer.open(5, path))
                peer.application.conversations[0].end = raises  # type: ignore[method-assign]
                peer.send(data_frame(5, b"", True))
            elif how == "stop":
                peer.send(peer.open(5, path))
                peer.application.conversations[0].stop = raises  # type: ignore[method-assign]
                peer.connection.drain()
            elif how == "drained":
                peer.send(peer.open(5, path))
                call = peer.application.conversations[0].call
                call.on_drained = lambda: raises()
                call.send((b"x",), 1)
            else:
                peer.send(peer.open(5, path) + data_frame(5, message(b"x"), True))
            await peer.turn()
        code, text = peer.status(5)
        assert code == 13
        assert "internal error" in text
        assert "boom" not in text
        assert path in caplog.text
        peer.application.waiting[0].call.reply((b"ok",), 2)
        await peer.turn()
        assert peer.status(3) == (0, "")
        if how != "stop":
            assert peer.serves(7)
        peer.leaves_nothing()

    run(test())


def test_a_handler_that_raises_after_its_answer_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Application):
        def echo(self, call: RpcCall, body: Body) -> None:
            super().echo(call, body)
            raise RuntimeError("boom")

    async def test() -> None:
        peer = RawPeer(application=Odd())
        assert peer.serves(1)
        assert peer.serves(3)
        assert "boom" in caplog.text

    run(test())


# Requests that are not as they should be


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "no message"),
        (b"\0\0", "middle of a message"),
        (message(b"abc")[:-1], "middle of a message"),
        (message(b"abc")[:5], "middle of a message"),
        (message(b"abc") + message(b"def"), "second"),
        (b"\x02\0\0\0\0", "begins with the byte 2"),
        (message(b"abc", 1), "grpc-encoding"),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 100])
def test_unary_requests_without_exactly_one_message(raw: bytes, text: str, size: int) -> None:
    async def test() -> None:
        peer = RawPeer()
        parts = [raw[i : i + size] for i in range(0, len(raw), size)]
        peer.send(peer.open(1) + b"".join(data_frame(1, part) for part in parts))
        # A second message is an error even if the first is being worked on.
        peer.send(data_frame(1, b"", True) if 1 in peer.core.streams else b"")
        await peer.turn()
        code, said = peer.status(1)
        assert code == 13
        assert text in said
        assert all(waiting.owner.cancelled == 1 for waiting in peer.application.waiting)
        assert peer.serves(3)
        peer.leaves_nothing()

    run(test())


LATE: dict[str, tuple[str, bytes, int]] = {
    "a second message": ("/Later", message(b"x") * 2, 13),
    "a message that is too long": ("/Listen", message(b"x") + message(bytes(2000)), 8),
    "messages that are too much together": ("/Listen", message(b"x") + message(bytes(900))[:600], 8),
    "a bad prefix": ("/Listen", message(b"x") + b"\x07\0\0\0\0", 13),
    "a message that is not compressed as it says": ("/Listen", message(b"x") + message(b"x", 1), 13),
    "the end in the middle of a message": ("/Listen", message(b"x") + b"\0", 13),
    "a message that comes too slowly": ("/Listen", message(b"x") + b"\0", 1),
}


@pytest.mark.parametrize("what", LATE)
def test_the_owner_hears_when_the_transport_ends_the_call(what: str) -> None:
    async def test() -> None:
        path, raw, code = LATE[what]
        peer = RawPeer(GrpcLimits(max_message_bytes=1000, max_partial_bytes=500))
        peer.send(peer.open(1, path, more=[("grpc-encoding", "gzip")]))
        peer.send(data_frame(1, raw, "end" in what))
        if "slowly" in what:
            peer.pass_time(40)
        await until(lambda: bool(peer.of("Headers", 1)))
        assert peer.status(1)[0] == code
        owners = [one.owner for one in peer.application.waiting] + list(peer.application.conversations)
        assert [owner.cancelled for owner in owners] == [1]
        peer.leaves_nothing()
        peer.lose()
        assert [owner.cancelled for owner in owners] == [1]

    run(test())


def test_a_stream_that_ends_in_the_middle_of_a_message() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Listen") + data_frame(1, message(b"whole") + b"\0\0\0", True))
        await peer.turn()
        assert peer.application.conversations[0].messages == [b"whole"]
        assert not peer.application.conversations[0].ended
        assert peer.status(1)[0] == 13
        peer.leaves_nothing()

    run(test())


def test_calls_that_are_refused_by_their_head() -> None:
    async def test() -> None:
        for chunk in (None, 1):
            peer = Peer(chunk=chunk)
            answer = await peer.answer(peer.call("/Nothing/AtAll", end=True))
            assert answer.status == 12
            answer = await peer.answer(peer.call("/Echo", ("grpc-encoding", "br"), end=True))
            assert answer.status == 12
            assert answer.headers["grpc-accept-encoding"] == "identity,gzip,deflate"
            answer = await peer.answer(peer.call("/Echo", ("grpc-timeout", "soon")))
            assert answer.status == 13
            await peer.works()
            assert [body for _, body in peer.application.seen] == [b"still there?"]
            peer.leaves_nothing()

    run(test())


@pytest.mark.parametrize(("name", "value", "status"), [(":method", "GET", "405"), ("content-type", "text/html", "415")])
@pytest.mark.parametrize("ended", [True, False])
def test_requests_that_are_no_calls(name: str, value: str, status: str, ended: bool) -> None:
    import hpack

    from support.h2_frames import call_headers, plain_block

    async def test() -> None:
        peer = RawPeer()
        fields = [(n, value if n == name else v) for n, v in call_headers("/Echo")]
        peer.send(frame(HEADERS, 4 | int(ended), 1, plain_block(fields)))
        if not ended:
            peer.send(data_frame(1, b"{}", True))
        (answer,) = peer.of("Headers", 1)
        assert dict(hpack.Decoder().decode(answer.data))[":status"] == status
        assert "END_STREAM" in answer.flags
        assert peer.serves(3)
        peer.leaves_nothing()

    run(test())


def test_an_early_answer_tells_the_caller_to_stop() -> None:
    async def test() -> None:
        peer = RawPeer(GrpcLimits(max_message_bytes=1000))
        peer.send(peer.open(1) + data_frame(1, message(bytes(5000))[:100]))
        await peer.turn()
        assert peer.status(1)[0] == 8
        assert peer.of("RstStream") == []
        peer.pass_time(1)
        await peer.turn()
        assert [one.error_code for one in peer.of("RstStream", 1)] == [0]
        before = len(peer.read())
        # What is still under way is dropped without a word.
        peer.send(data_frame(1, bytes(2000)) + frame(WINDOW, 0, 1, b"\0\0\0\1") + data_frame(1, b"", True))
        peer.send(frame(RST, 0, 1, b"\0\0\0\x08"))
        assert len(peer.read()) == before
        assert peer.serves(3)

    run(test())


@pytest.mark.parametrize(
    "rest", [data_frame(1, b"", True), data_frame(1, bytes(100)) + data_frame(1, b"", True), frame(HEADERS, 5, 1)]
)
@pytest.mark.parametrize("ended", ["with the answer", "soon"])
def test_a_call_that_is_answered_before_it_ended_is_not_reset_when_it_ends(rest: bytes, ended: str) -> None:
    async def test() -> None:
        peer = RawPeer()
        begun = peer.open(1, "/Echo") + data_frame(1, message(b"x"))
        if ended == "soon":
            peer.send(begun)
            await peer.turn()
            peer.send(rest)
        else:
            peer.send(begun + rest)
        assert peer.status(1) == (0, "")
        assert not peer.core.streams
        peer.pass_time(3)
        await peer.turn()
        assert peer.of("RstStream") == []
        peer.leaves_nothing()

    run(test())


# Taking answers


def test_answers_pile_up_and_leave() -> None:
    async def test() -> None:
        peer = RawPeer()
        peer.send(peer.open(1, "/Listen"))
        call = peer.application.conversations[0].call
        drained = []
        call.on_drained = lambda: drained.append(call.congested)
        piece = bytes(100_000)
        sent = 0
        while not call.congested:
            call.send((piece,), len(piece))
            sent += len(piece) + 5
            await peer.turn()
        assert CONGESTED_BYTES < sent < CONGESTED_BYTES + 300_000
        assert drained == []
        peer.send(frame(WINDOW, 0, 0, b"\0\x7f\0\0") + frame(WINDOW, 0, 1, b"\0\x7f\0\0"))
        assert not call.congested
        assert drained == [False]
        call.send((b"x",), 1)
        await peer.turn()
        assert drained == [False, False]
        call.finish()
        await peer.turn()
        assert len(drained) == 2
        peer.leaves_nothing()

    run(test())


def test_sending_from_on_drained() -> None:
    async def test() -> None:
        peer = Peer()
        stream_id = peer.call("/Listen", end=True)
        call = peer.application.conversations[0].call
        left = [30]

        def more() -> None:
            left[0] -= 1
            if left[0]:
                call.send((numbered(50_000),), 50_000)
            else:
                call.finish()

        call.on_drained = more
        more()
        answer = await peer.answer(stream_id)
        assert answer.messages == [numbered(50_000)] * 29
        assert answer.status == 0
        peer.leaves_nothing()

    run(test())


# Metadata and statuses


def test_metadata_as_the_caller_sent_it() -> None:
    async def test() -> None:
        peer = Peer()
        stream_id = peer.call("/Later", ("x-a", "1"), ("x-b-bin", "AAE="), ("x-a", "2"), body=b"")
        metadata = peer.application.waiting[0].call.metadata
        assert (metadata["x-a"], metadata["x-b-bin"]) == ("1,2", "AAE=")
        peer.application.waiting[0].call.finish(5, "not \u2603 found\n")
        answer = await peer.answer(stream_id)
        assert answer.status == 5
        assert answer.text == "not %E2%98%83 found%0A"

    run(test())


def test_statuses_before_and_behind_messages() -> None:
    async def test() -> None:
        peer = Peer()
        for code, text in ((0, ""), (3, "bad input"), (14, " spaces around ")):
            stream_id = peer.call("/Later", body=b"")
            peer.application.waiting[-1].call.finish(code, text)
            answer = await peer.answer(stream_id)
            assert (answer.status, answer.messages, answer.trailers) == (code, [], {})
            stream_id = peer.call("/Later", body=b"")
            call = peer.application.waiting[-1].call
            call.send((b"one", b"two"), 6)
            call.send((), 0)
            call.finish(code, text)
            answer = await peer.answer(stream_id)
            assert answer.messages == [b"onetwo", b""]
            assert answer.trailers["grpc-status"] == str(code)
        peer.leaves_nothing()

    run(test())
