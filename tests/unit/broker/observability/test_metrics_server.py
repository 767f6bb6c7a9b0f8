"""The metrics server over real sockets: replies, limits and stalled scrapers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http.client import HTTPConnection

import pytest

from orbitmq.broker.observability.metrics_server import (
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    MetricsServer,
)
from support.common.waiting import until

TEXT = b"# TYPE rocketmq_topic_number gauge\nrocketmq_topic_number 17.0\n"


@asynccontextmanager
async def serving(
    render: Callable[[], Iterable[bytes]] = lambda: [TEXT], timeout_ms: int = 10_000
) -> AsyncIterator[MetricsServer]:
    server = MetricsServer(render, port=0, timeout_ms=timeout_ms)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def connected(
    server: MetricsServer, request: bytes = b""
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(request)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def exchange(server: MetricsServer, request: bytes) -> tuple[bytes, bytes]:
    """Return the head and the body of the reply."""
    async with connected(server, request) as (reader, _):
        reply = await reader.read()
    head, _, body = reply.partition(b"\r\n\r\n")
    return head, body


def test_a_standard_client_gets_the_metrics() -> None:
    async def main() -> None:
        async with serving(lambda: [TEXT[:10], b"", TEXT[10:]]) as server:

            def scrape() -> tuple[int, str | None, bytes]:
                connection = HTTPConnection(*server.address, timeout=60)
                connection.request("GET", "/metrics", headers={"Accept": "text/plain"})
                response = connection.getresponse()
                body = response.read()
                connection.close()
                return response.status, response.getheader("Content-Type"), body

            for _ in range(2):
                assert await asyncio.to_thread(scrape) == (
                    200,
                    "text/plain; version=0.0.4; charset=utf-8",
                    TEXT,
                )

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /metrics HTTP/1.1", b"200 OK", TEXT),
        (b"GET /metrics/?name[]=a HTTP/1.0", b"200 OK", TEXT),
        (b"HEAD /metrics HTTP/1.1", b"200 OK", b""),
        (b"GET /-/healthy HTTP/1.1", b"200 OK", b"Exporter is healthy.\n"),
        (b"GET / HTTP/1.1", b"404 Not Found", b"Metrics are at /metrics.\n"),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed", b"Only GET and HEAD are served.\n"),
        (b"\x16\x03\x01\xff", b"405 Method Not Allowed", b"Only GET and HEAD are served.\n"),
    ],
)
def test_each_request_gets_a_reply_and_the_connection_is_closed(
    request_line: bytes, status: bytes, body: bytes
) -> None:
    async def main() -> None:
        async with serving() as server:
            head, got = await exchange(server, request_line + b"\r\nHost: x\r\n\r\n")
        lines = head.split(b"\r\n")
        assert lines[0] == b"HTTP/1.1 " + status
        assert b"Connection: close" in lines
        if not request_line.startswith(b"HEAD"):
            assert b"Content-Length: %d" % len(body) in lines
        else:
            assert b"Content-Length: %d" % len(TEXT) in lines
        assert got == body

    asyncio.run(main())


def test_the_loop_serves_other_tasks_after_each_piece() -> None:
    iterations = 0
    seen: list[int] = []

    def render() -> Iterator[bytes]:
        for _ in range(5):
            seen.append(iterations)
            yield b"a 1\n"

    async def main() -> None:
        nonlocal iterations

        async def other() -> None:
            nonlocal iterations
            while True:
                iterations += 1
                await asyncio.sleep(0)

        async with serving(render) as server:
            task = asyncio.create_task(other())
            _, body = await exchange(server, b"GET /metrics HTTP/1.1\r\n\r\n")
            task.cancel()
            assert body == b"a 1\n" * 5

    asyncio.run(main())
    assert len(set(seen)) == 5


def test_a_failing_source_is_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    def render() -> Iterator[bytes]:
        yield TEXT
        raise ValueError("no such queue")

    async def main() -> None:
        async with serving(render) as server:
            head, body = await exchange(server, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 500 ")
        assert body == b"Reading the metrics failed; the broker's log says why.\n"

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "no such queue" in caplog.text


@pytest.mark.parametrize(
    ("request_head", "timeout_ms"),
    [(b"GET /" + b"x" * (2 * REQUEST_BYTES_MAX), 10_000), (b"GET /metrics", 1)],
)
def test_oversized_and_slow_requests_are_disconnected(request_head: bytes, timeout_ms: int) -> None:
    async def main() -> None:
        async with (
            serving(timeout_ms=timeout_ms) as server,
            connected(server, request_head) as (reader, _),
        ):
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)

    asyncio.run(main())


def test_a_scraper_that_does_not_read_is_disconnected() -> None:
    async def main() -> None:
        async with serving(lambda: [bytes(64 << 20)], timeout_ms=300) as server:
            reader, writer = await asyncio.open_connection(*server.address, limit=1)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            await until(lambda: server._connections, "the request")
            await until(lambda: not server._connections, "that it is disconnected")
            got = 0
            with suppress(ConnectionError):
                while piece := await reader.read(1 << 20):
                    got += len(piece)
            assert got < 64 << 20
            writer.transport.abort()

    asyncio.run(main())


def test_a_new_scraper_replaces_the_oldest_stalled_connection_and_the_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with serving() as server, AsyncExitStack() as stack:
            stalled = []
            for number in range(CONNECTIONS_MAX):
                stalled.append(await stack.enter_async_context(connected(server)))
                await until(lambda number=number: len(server._connections) > number)  # type: ignore[misc]
            oldest = stalled[0][1].get_extra_info("sockname")[1]
            assert (await exchange(server, b"GET /metrics HTTP/1.1\r\n\r\n"))[1] == TEXT
            with suppress(ConnectionError):
                assert await stalled[0][0].read() == b""
            assert f"peer=127.0.0.1:{oldest} " in caplog.text
            for reader, writer in stalled[1:]:
                writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
                assert (await reader.read()).endswith(TEXT)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


def test_stop_closes_pending_connections_and_frees_the_port() -> None:
    async def main() -> None:
        server = MetricsServer(lambda: [TEXT], port=0)
        await server.stop()
        await server.start()
        address = server.address
        assert (await exchange(server, b"GET /metrics HTTP/1.1\r\n\r\n"))[1] == TEXT
        async with connected(server, b"GET") as (reader, _):
            await exchange(
                server, b"GET /metrics HTTP/1.1\r\n\r\n"
            )  # so that the previous connection was accepted
            await server.stop()
            with suppress(ConnectionError):
                assert await reader.read() == b""
        again = MetricsServer(lambda: [TEXT], *address)
        await again.start()
        assert again.address == address
        await again.stop()

    asyncio.run(main())


def test_the_default_host_is_the_loopback_address() -> None:
    assert MetricsServer(lambda: []).address == ("127.0.0.1", 5557)
