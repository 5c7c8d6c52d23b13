"""One HTTP/1.1 connection, seen from a client's socket."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import socket
import time
from collections.abc import Callable

import pytest

from naiad.errors import InternalError
from naiad.frontends.http.server.connection import MAX_UNANSWERED
from naiad.frontends.http.server.state import RECEIVE_BYTES, HttpLimits
from support.event_loops import LOOPS, run, until
from support.http_peer import Client, Server, post, serving


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_connection_carries_requests_one_after_the_other(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            for body in (b"one", b"two", b"", b"two"):
                client.post("/echo", body)
                response = await client.response()
                assert (response.status, response.body) == (200, body)
                assert [name for name, _ in response.headers] == ["Content-Type", "Content-Length"]

    run(test(), loop)


def test_a_request_in_single_bytes(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            for byte in post("/echo", b"hello"):
                client.send(bytes([byte]))
                await client.writer.drain()
                await asyncio.sleep(0)
            assert (await client.response()).body == b"hello"

    run(test(), loop)


@pytest.mark.parametrize("size", [1, 300, 16_384, 16_385, 40_000])
@pytest.mark.parametrize("cuts", [(0,), (0, 1), (0, 200), (-1,), (0, "end")])
def test_a_head_may_come_before_its_body(loop: str, size: int, cuts: tuple[int | str, ...]) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            body = bytes(range(250)) * (size // 250 + 1)
            whole = post("/echo", body[:size]) + post("/echo", b"next")
            start = len(post("/echo", body[:size])) - size
            places = [start + (size if cut == "end" else int(cut)) for cut in cuts]
            for begin, end in zip((0, *places), (*places, len(whole)), strict=True):
                client.send(whole[begin:end])
                await client.writer.drain()
                for _ in range(10):
                    await asyncio.sleep(0)
            assert (await client.response()).body == body[:size]
            assert (await client.response()).body == b"next"

    run(test(), loop)


def test_a_small_body_that_never_comes_is_given_up(loop: str) -> None:
    async def test() -> None:
        async with serving(HttpLimits(body_grace_s=3)) as server:
            client = await server.connect()
            client.send(post("/echo", b"hello")[:-5])
            await until(lambda: all(c._state for c in server.listener.connections))
            server.pass_time(4)
            assert (await client.response()).status == 408

    run(test(), loop)


@pytest.mark.parametrize("size", [32_768, 65_536, 65_537, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5_000_000])
def test_bodies_of_all_sizes_come_back(loop: str, size: int) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]

    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/echo", body)
            assert (await client.response()).body == body
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:1000], body[1000:]))
            client.send(b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nA: b\r\n\r\n")
            client.post("/echo", b"next")
            assert (await client.response()).body == body
            assert (await client.response()).body == b"next"

    run(test(), loop)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_body_may_be_kept_and_written_to(loop: str, size: int) -> None:
    async def test() -> None:
        async with serving() as server:
            kept: list[bytearray | memoryview] = []
            server.application.not_found = lambda exchange, body: (kept.append(body), exchange.send_error(404, "x"))[1]  # type: ignore[method-assign]
            client = await server.connect()
            for fill in (b"a", b"b"):
                client.post("/other", fill * size)
                await client.response()
            kept[0][0] = ord("c")
            assert bytes(kept[0]) == b"c" + b"a" * (size - 1)
            assert bytes(kept[1]) == b"b" * size

    run(test(), loop)


def test_answers_leave_in_the_order_of_requests(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(post("/later") + post("/echo", b"2") + post("/later") + post("/echo", b"4"))
            await server.application.wait_for(2)
            first, third = server.application.waiting
            third.send_status(200, "text/plain", b"3")
            first.send_status(200, "text/plain", b"1")
            assert [(await client.response()).body for _ in range(4)] == [b"1", b"2", b"3", b"4"]

    run(test(), loop)


def test_requests_ahead_of_their_answers_are_bounded(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(post("/later", b"x" * 5000) * 200)
            await server.application.wait_for(MAX_UNANSWERED)
            await asyncio.sleep(0.02)
            assert len(server.application.waiting) == MAX_UNANSWERED
            for number in range(200):
                await server.application.wait_for(number + 1)
                server.application.waiting[number].send_status(200, "text/plain", b"%d" % number)
                assert len(server.application.waiting) <= number + 1 + MAX_UNANSWERED
            assert [(await client.response()).body for _ in range(200)] == [b"%d" % number for number in range(200)]

    run(test(), loop)


def test_head_gets_no_body_and_keeps_the_connection(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(b"HEAD /big?70000 HTTP/1.1\r\n\r\n")
            response = await client.response(has_body=False)
            assert dict(response.headers)["Content-Length"] == "70000"
            client.post("/echo", b"next")
            assert (await client.response()).body == b"next"

    run(test(), loop)


@pytest.mark.parametrize(
    "lines", ["POST /echo HTTP/1.0\r\n", "POST /echo HTTP/1.1\r\nConnection: close\r\n"], ids=["1.0", "close"]
)
def test_a_last_request_ends_the_connection(loop: str, lines: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(f"{lines}Content-Length: 2\r\n\r\nhi".encode() + post("/echo", b"not read"))
            response = await client.response()
            assert response.body == b"hi"
            assert ("Connection", "close") in response.headers
            assert await client.ends() == b""
            assert server.application.handled == 1

    run(test(), loop)


def test_http_1_0_may_keep_the_connection(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            for _ in range(2):
                client.send(b"POST /echo HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi")
                response = await client.response()
                assert response.body == b"hi"
                assert ("Connection", "keep-alive") in response.headers

    run(test(), loop)


def test_continue_is_sent_before_the_body(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            for framing, body in (
                ("Content-Length: 2", b"hi"),
                ("Transfer-Encoding: chunked", b"2\r\nhi\r\n0\r\n\r\n"),
            ):
                client.send(f"POST /echo HTTP/1.1\r\nExpect: 100-continue\r\n{framing}\r\n\r\n".encode())
                assert (await client.response()).status == 100
                client.send(body)
                assert (await client.response()).body == b"hi"

    run(test(), loop)


def test_continue_waits_for_earlier_answers(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(post("/later") + b"POST /echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            await server.application.wait_for(1)
            server.application.waiting[0].send_status(200, "text/plain", b"first")
            assert (await client.response()).body == b"first"
            assert (await client.response()).status == 100
            client.send(b"hi")
            assert (await client.response()).body == b"hi"

    run(test(), loop)


def test_continue_is_left_out_when_the_body_is_there_or_empty(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/echo", b"hi", "Expect: 100-continue")
            assert (await client.response()).body == b"hi"
            client.post("/echo", b"", "Expect: 100-continue")
            assert (await client.response()).status == 200

    run(test(), loop)


@pytest.mark.parametrize(
    "request_head",
    [
        b"POST /echo HTTP/1.1\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nContent-Length: 60000000000\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n",
    ],
)
def test_a_body_over_the_limit_is_refused_from_its_head(loop: str, request_head: bytes) -> None:
    async def test() -> None:
        async with serving(HttpLimits(max_body_bytes=100)) as server:
            client = await server.connect()
            client.send(request_head)
            response = await client.response()
            assert response.status == 400
            error = json.loads(response.body)["error"]
            assert "exceeds the maximum allowed input size of 100 bytes. Use --http-max-input-size" in error
            assert ("Connection", "close") in response.headers
            assert await client.ends() == b""
            assert server.application.handled == 0

    run(test(), loop)


@pytest.mark.parametrize(
    "request_head",
    [
        b"POST /echo HTTP/1.1\r\nContent-Length: 101\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n",
    ],
)
def test_a_body_over_the_limit_has_the_status_of_http_when_asked_for(loop: str, request_head: bytes) -> None:
    async def test() -> None:
        async with serving(HttpLimits(max_body_bytes=100, too_large_status=413)) as server:
            client = await server.connect()
            client.send(request_head)
            assert (await client.response()).status == 413

    run(test(), loop)


def test_a_body_over_the_limit_is_refused_however_often_its_head_comes(loop: str) -> None:
    async def test() -> None:
        async with serving(HttpLimits(max_body_bytes=100)) as server:
            for _ in range(4):
                client = await server.connect()
                client.send(b"POST /echo HTTP/1.1\r\nContent-Length: 101\r\n\r\n" + b"x" * 101)
                response = await client.response()
                assert response.status == 400
            assert server.application.handled == 0

    run(test(), loop)


def test_a_client_that_sends_a_refused_body_whole_still_reads_the_answer(loop: str) -> None:
    async def test() -> None:
        async with serving(HttpLimits(max_body_bytes=100)) as server:
            client = await server.connect()
            client.post("/echo", b"x" * 20_000_000)
            await asyncio.wait_for(client.writer.drain(), 10)
            assert (await client.response()).status == 400

    run(test(), loop)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"GET / HTTP/1.1\r\nExpect: more\r\n\r\n", 417),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000, 431),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_no_request_is_answered_after_the_requests_before_it(loop: str, data: bytes, status: int) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(post("/later") + data)
            await server.application.wait_for(1)
            await asyncio.sleep(0.01)
            server.application.waiting[0].send_status(200, "text/plain", b"first")
            assert (await client.response()).body == b"first"
            response = await client.response()
            assert response.status == status
            assert json.loads(response.body)["error"]
            assert ("Connection", "close") in response.headers
            assert await client.ends() == b""

    run(test(), loop)


def test_unknown_methods_reach_the_application(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(b"BREW /pot HTTP/1.1\r\n\r\n")
            assert (await client.response()).status == 404

    run(test(), loop)


def test_empty_lines_between_requests_are_ignored(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(b"\r\n" + post("/echo", b"1") + b"\r\n\r\n\r\n" + post("/echo", b"2") + b"\r\n")
            assert [(await client.response()).body for _ in range(2)] == [b"1", b"2"]
            server.pass_time(60)
            client.post("/echo", b"3")
            assert (await client.response()).body == b"3"

    run(test(), loop)


def test_a_failing_handler_is_answered_500_and_nothing_else_ends(loop: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/fail")
            assert (await client.response()).status == 500
            client.post("/echo", b"next")
            assert (await client.response()).body == b"next"

    with caplog.at_level(logging.ERROR):
        run(test(), loop)
    assert "boom" in caplog.text


def test_a_second_answer_is_an_error(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(post("/later") + post("/later"))
            await server.application.wait_for(2)
            first, second = server.application.waiting
            second.send_status(200, "text/plain", b"2")
            with pytest.raises(InternalError, match="answered twice"):
                second.send_status(200, "text/plain", b"again")
            first.send_status(200, "text/plain", b"1")
            with pytest.raises(InternalError, match="answered twice"):
                first.send_status(200, "text/plain", b"again")
            assert [(await client.response()).body for _ in range(2)] == [b"1", b"2"]

    run(test(), loop)


def test_a_half_closed_peer_gets_its_answers(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(post("/later") + post("/echo", b"2"))
            client.writer.write_eof()
            await server.application.wait_for(1)
            await asyncio.sleep(0.01)
            server.application.waiting[0].send_status(200, "text/plain", b"1")
            assert [(await client.response()).body for _ in range(2)] == [b"1", b"2"]
            assert await client.ends() == b""

    run(test(), loop)


def test_a_peer_that_leaves_within_a_body_is_forgotten(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            for head in (b"Content-Length: 100", b"Transfer-Encoding: chunked"):
                client = await server.connect()
                client.send(b"POST /echo HTTP/1.1\r\n" + head + b"\r\n\r\n5\r\nab")
                client.writer.write_eof()
                assert await client.ends() == b""
            await until(lambda: server.listener.connection_count == 0)
            assert server.application.handled == 0

    run(test(), loop)


def test_a_lost_peer_is_reported_once_and_its_answer_dropped(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/later")
            await server.application.wait_for(1)
            exchange = server.application.waiting[0]
            assert not exchange.closed()
            raw = client.writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            client.writer.transport.abort()
            await until(exchange.closed)
            assert server.application.disconnected == 1
            exchange.send_status(200, "text/plain", b"nobody reads this")

    run(test(), loop)


def slow_reader(server: Server) -> Callable[[], bool]:
    """True when the server has stopped taking requests."""
    seen = [-1]

    def stopped() -> bool:
        before, seen[0] = seen[0], server.application.handled
        return before == seen[0] > 0

    return stopped


def test_a_peer_that_does_not_read_stops_being_served(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect(limit=1000)
            count, size = 200, 300_000
            client.send(f"GET /big?{size} HTTP/1.1\r\n\r\n".encode() * count)
            stopped = slow_reader(server)
            while not stopped():
                await asyncio.sleep(0.05)
            assert server.application.handled < count // 2
            for _ in range(count):
                await client.reader.readuntil(b"\r\n\r\n")
                await asyncio.wait_for(client.reader.readexactly(size), 10)
            assert server.application.handled == count

    run(test(), loop)


def test_a_peer_that_never_reads_is_dropped_after_the_idle_time(loop: str) -> None:
    async def test() -> None:
        async with serving(HttpLimits(idle_s=20)) as server:
            client = await server.connect(limit=1000)
            client.send(b"GET /big?30000000 HTTP/1.1\r\n\r\n")
            await client.reader.readuntil(b"\r\n\r\n")
            server.pass_time(19)
            await asyncio.sleep(0.01)
            assert server.listener.connection_count == 1
            server.pass_time(42)
            await until(lambda: server.listener.connection_count == 0)

    run(test(), loop)


def test_an_idle_connection_is_closed(loop: str) -> None:
    async def test() -> None:
        async with serving(HttpLimits(idle_s=20)) as server:
            client = await server.connect()
            server.pass_time(19)
            client.post("/echo", b"1")
            assert (await client.response()).body == b"1"
            server.pass_time(19)
            client.post("/later")
            await server.application.wait_for(1)
            server.pass_time(100)
            server.application.waiting[0].send_status(200, "text/plain", b"2")
            assert (await client.response()).body == b"2"
            server.pass_time(19)
            await asyncio.sleep(0.01)
            assert server.listener.connection_count == 1
            server.pass_time(1)
            assert await client.ends() == b""

    run(test(), loop)


@pytest.mark.parametrize(
    "data",
    [b"POST /ec", post("/echo", b"x" * 10)[:-1], b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"],
    ids=["head", "body", "chunk"],
)
def test_a_request_that_does_not_arrive_is_given_up(loop: str, data: bytes) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(data)
            await asyncio.sleep(0.05)
            server.pass_time(29)
            await asyncio.sleep(0.01)
            assert server.listener.connection_count == 1
            server.pass_time(1)
            assert (await client.response()).status == 408
            assert await client.ends() == b""

    run(test(), loop)


async def trickle(server: Server, client: Client, bytes_per_s: int, seconds: int) -> None:
    for _ in range(seconds):
        client.send(b"x" * bytes_per_s)
        await client.writer.drain()
        await asyncio.sleep(0.005)
        server.pass_time(1)


@pytest.mark.slow
def test_a_body_may_take_long_while_it_keeps_its_rate(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(b"POST /echo HTTP/1.1\r\nContent-Length: 7000000\r\n\r\n")
            await trickle(server, client, 70_000, 99)
            client.send(b"x" * 70_000)
            assert len((await client.response()).body) == 7_000_000

    run(test(), loop)


def test_a_body_below_the_rate_is_given_up(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.send(b"POST /echo HTTP/1.1\r\nContent-Length: 7000000\r\n\r\n")
            await trickle(server, client, 7_000, 50)
            assert (await client.response()).status == 408

    run(test(), loop)


def test_a_declared_length_costs_no_memory(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            before = resident_bytes()
            for _ in range(20):
                client = await server.connect()
                client.send(b"POST /echo HTTP/1.1\r\nContent-Length: 60000000\r\n\r\nx")
            await until(lambda: server.listener.connection_count == 20)
            await asyncio.sleep(0.02)
            assert resident_bytes() - before < 60_000_000

    run(test(), loop)


def resident_bytes() -> int:
    import psutil

    return int(psutil.Process().memory_info().rss)


@pytest.mark.parametrize("kind", ["chunks", "requests"])
def test_others_have_a_turn_after_each_full_buffer(loop: str, kind: str) -> None:
    """libuv would fill the buffer many times first."""
    request = post("/big?0")
    raw = request * 20_000
    if kind == "chunks":
        raw = b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + b"400\r\n%b\r\n" % bytes(1024) * 2000

    async def test() -> None:
        async with serving() as server:
            turns = asyncio.get_running_loop()
            seen = [0]

            def look() -> None:
                handled = server.application.handled * len(request)
                seen.append(server.listener._service.arriving_bytes if kind == "chunks" else handled)
                turns.call_soon(look)

            turns.call_soon(look)
            with socket.create_connection(("127.0.0.1", server.listener.port)) as client:
                client.setblocking(False)
                # As much as the kernel takes before the loop looks.
                client.send(raw)
                time.sleep(0.1)
                await until(lambda: seen[-1] > 5 * RECEIVE_BYTES)
            # One buffer or, where the order of a turn changes, two.
            assert max(after - before for before, after in itertools.pairwise(seen)) <= 2 * RECEIVE_BYTES

    run(test(), loop)
