"""Opening, limiting and closing a listener."""

from __future__ import annotations

import asyncio
import socket

import pytest

from naiad.clock import ManualClock
from naiad.errors import OptionError
from naiad.frontends.http.server.listener import HttpListener
from naiad.frontends.http.server.state import HttpLimits, HttpService
from naiad.frontends.net.listener import Listener, bare_host, shown_address
from support.event_loops import LOOPS, run, until
from support.http_peer import Application, Server, post, serving


@pytest.fixture(params=sorted(LOOPS))
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_addresses() -> None:
    assert bare_host("ipv6:[::1]") == bare_host("[::1]") == bare_host("::1") == "::1"
    assert bare_host("0.0.0.0") == "0.0.0.0"
    assert shown_address("ipv6:[::1]", 8000) == "[::1]:8000"
    assert shown_address("localhost", 8000) == "localhost:8000"


def test_a_taken_port_is_named_with_its_option(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            port = server.listener.port
            second = HttpListener(Application(), "127.0.0.1", port, option="--metrics-port")
            with pytest.raises(OptionError) as caught:
                await second.start()
            assert f"127.0.0.1:{port}" in str(caught.value)
            assert "--metrics-port" in str(caught.value)

    run(test(), loop)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.1"])
def test_a_wrong_address_is_named_with_its_option(loop: str, host: str) -> None:
    async def test() -> None:
        with pytest.raises(OptionError, match=r"--http-(address|port)"):
            await HttpListener(Application(), host, 0).start()

    run(test(), loop)


def test_a_listener_without_a_port_opens_none(loop: str) -> None:
    async def test() -> None:
        service = HttpService(Application(), HttpLimits())
        listener = Listener(service, asyncio.Protocol, "no.such.host.invalid", None, option="--http-port")
        await listener.start()
        assert (listener.port, listener.connection_count) == (0, 0)
        assert service.gathers_writes is (loop == "uvloop")
        assert await listener.drain(1)
        assert service.draining

    run(test(), loop)


def test_several_listeners_may_share_a_port_when_asked(loop: str) -> None:
    async def test() -> None:
        first = HttpListener(Application(), "127.0.0.1", 0, reuse_port=True)
        await first.start()
        second = HttpListener(Application(), "127.0.0.1", first.port, reuse_port=True)
        await second.start()
        assert first.port == second.port
        for listener in (first, second):
            assert await listener.drain(1)
        await asyncio.sleep(0)

    run(test(), loop)


def test_localhost_listens_on_one_port_for_all_its_addresses(loop: str) -> None:
    async def test() -> None:
        listener = HttpListener(Application(), "localhost", 0)
        await listener.start()
        for _, _, _, _, address in socket.getaddrinfo("localhost", listener.port, type=socket.SOCK_STREAM):
            _, writer = await asyncio.open_connection(*address[:2])
            writer.close()
        await listener.drain(1)

    run(test(), loop)


def test_ipv6(loop: str) -> None:
    async def test() -> None:
        listener = HttpListener(Application(), "ipv6:[::1]", 0, clock=ManualClock())
        try:
            await listener.start()
        except OptionError as error:
            pytest.skip(f"no IPv6 here: {error}")
        reader, writer = await asyncio.open_connection("::1", listener.port)
        writer.write(post("/echo", b"six", "Connection: close"))
        assert (await reader.read()).endswith(b"six")
        writer.close()
        assert await listener.drain(1)

    run(test(), loop)


def test_small_answers_are_not_held_back(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/later")
            await server.application.wait_for(1)
            exchange = server.application.waiting[0]
            peer = exchange.connection._transport.get_extra_info("socket")
            assert peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            exchange.send_status(200, "text/plain", b"")
            await client.response()

    run(test(), loop)


async def echoes(server: Server) -> bool:
    client = await server.connect()
    client.post("/echo", b"hi")
    response = await client.response()
    return response.status == 200


def test_connections_over_the_limit_are_told_so(loop: str) -> None:
    async def test() -> None:
        async with serving(HttpLimits(max_connections=2)) as server:
            assert await echoes(server)
            assert await echoes(server)
            refused = await server.connect()
            response = await refused.response()
            assert response.status == 503
            assert ("Connection", "close") in response.headers
            assert await refused.ends() == b""
            await refused.close()
            await server.clients[0].close()
            await until(lambda: server.listener.connection_count == 1)
            assert await echoes(server)

    run(test(), loop)


def test_a_refused_connection_that_stays_is_dropped(loop: str) -> None:
    async def test() -> None:
        async with serving(HttpLimits(max_connections=1)) as server:
            assert await echoes(server)
            refused = await server.connect()
            await refused.ends()
            server.pass_time(3)
            await until(lambda: server.listener.connection_count == 1)

    run(test(), loop)


def test_an_ended_connection_that_the_peer_keeps_open_is_dropped(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/echo", b"hi", "Connection: close")
            await client.ends()
            server.pass_time(29)
            await asyncio.sleep(0.01)
            assert server.listener.connection_count == 1
            server.pass_time(1)
            await until(lambda: server.listener.connection_count == 0)

    run(test(), loop)


def test_no_new_connections_after_stop_accepting(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/echo", b"1")
            await client.response()
            server.listener.stop_accepting()
            await asyncio.sleep(0.01)
            with pytest.raises(OSError, match=r"refused|Connect call failed"):
                await server.connect()
            client.post("/echo", b"2")
            assert (await client.response()).body == b"2"

    run(test(), loop)


def test_draining_closes_the_idle_and_finishes_the_busy(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            idle = await server.connect()
            assert await echoes(server)
            busy = await server.connect()
            busy.send(post("/later") + post("/later"))
            await server.application.wait_for(2)
            uploading = await server.connect()
            uploading.send(post("/echo", b"x" * 100_000)[:-1])
            await until(lambda: server.listener.connection_count == 4)
            await asyncio.sleep(0.02)
            drained = asyncio.create_task(server.listener.drain(10))
            assert await idle.ends() == b""
            busy.send(post("/echo", b"too late"))
            for exchange in server.application.waiting:
                exchange.send_status(200, "text/plain", b"done")
            assert ("Connection", "close") not in (await busy.response()).headers
            assert ("Connection", "close") in (await busy.response()).headers
            assert await busy.ends() == b""
            await busy.close()
            assert not drained.done()
            uploading.send(b"x")
            assert ("Connection", "close") in (response := await uploading.response()).headers
            assert len(response.body) == 100_000
            await uploading.close()
            assert await drained

    run(test(), loop)


def test_draining_gives_up_after_its_time(loop: str) -> None:
    async def test() -> None:
        async with serving() as server:
            client = await server.connect()
            client.post("/later")
            await server.application.wait_for(1)
            assert not await server.listener.drain(0.05)
            assert await client.is_lost()
            await until(lambda: server.application.disconnected == 1)
            server.application.waiting[0].send_status(200, "text/plain", b"nobody")

    run(test(), loop)


@pytest.mark.slow
def test_the_sweep_runs_by_itself() -> None:
    async def test() -> None:
        clock = ManualClock()
        listener = HttpListener(Application(), "127.0.0.1", 0, clock=clock, limits=HttpLimits(idle_s=5))
        await listener.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        clock.advance(5_000_000_000)
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()
        assert await listener.drain(1)

    run(test(), "uvloop")
