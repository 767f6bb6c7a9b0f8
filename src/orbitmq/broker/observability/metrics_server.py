"""A small HTTP server for Prometheus: GET /metrics and GET /-/healthy; other paths are 404.

Knows nothing of what is measured: `render` yields the text in pieces, and the loop serves other
clients after each. A connection carries one request, so no state outlives it.

Invariants: the size and duration of a request and the number of connections are limited; a new
connection replaces the oldest, so stalled scrapers cannot lock out others.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final

from orbitmq.common.errors import ConfigurationError
from orbitmq.remoting.channel import address_text

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
REQUEST_BYTES_MAX: Final = 16_384
_CHUNK_BYTES: Final = 256 * 1024
CONNECTIONS_MAX: Final = 8

log = logging.getLogger(__name__)


class MetricsServer:
    """Serves metrics from `start` to `stop`. The default host is the loopback address, because
    metrics name topics, groups and clients.
    """

    def __init__(
        self,
        render: Callable[[], Iterable[bytes]],
        host: str = "",
        port: int = 5557,
        *,
        timeout_ms: int = 10_000,
    ) -> None:
        self._render = render
        self._host = host or "127.0.0.1"
        self._port = port
        self._timeout_s = timeout_ms / 1000
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], str] = {}  # with their peers, oldest first

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port; after `start`, the port that the server is bound to."""
        if self._server is None:
            return self._host, self._port
        host, port, *_ = self._server.sockets[0].getsockname()
        return host, port

    async def start(self) -> None:
        """Start listening. Raises ConfigurationError if that fails."""
        try:
            self._server = await asyncio.start_server(
                self._on_connection, self._host, self._port, limit=REQUEST_BYTES_MAX
            )
        except OSError as problem:
            if problem.errno == errno.EADDRINUSE:
                fix = (
                    "another program listens there; stop it, or choose another"
                    " metricsPromExporterPort"
                )
            else:
                fix = "check metricsPromExporterHost and metricsPromExporterPort"
            why = (
                os.strerror(problem.errno)
                if problem.errno and problem.errno > 0
                else problem.strerror or problem
            )
            raise ConfigurationError(
                f"cannot listen on {self._host}:{self._port}: {why}; {fix}"
            ) from problem
        log.info("metrics_listening address=%s:%d", *self.address)

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def _on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= CONNECTIONS_MAX:
            oldest, peer = next(iter(self._connections.items()))
            del self._connections[oldest]
            oldest.cancel()
            log.warning(
                "metrics_connection_closed peer=%s why='the oldest of %d connections'",
                peer,
                CONNECTIONS_MAX,
            )
        self._connections[task] = address_text(writer.get_extra_info("peername"))
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._serve(reader, writer)
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError, EOFError, asyncio.LimitOverrunError) as error:
            log.debug("metrics_connection_lost reason=%r", error)
        finally:
            self._connections.pop(task, None)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        status, content_type, body = await self._reply(method, rest.split(" ")[0].split("?")[0])
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {content_type}",
            f"Content-Length: {sum(map(len, body))}",
            "Connection: close",
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        writer.write("\r\n".join([*lines, "", ""]).encode("latin-1"))
        for chunk in body if method != "HEAD" else ():
            writer.write(chunk)
            await writer.drain()
            await asyncio.sleep(0)
        await writer.drain()

    async def _reply(self, method: str, path: str) -> tuple[HTTPStatus, str, list[bytes]]:
        plain = "text/plain; charset=utf-8"
        if method not in ("GET", "HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, plain, [b"Only GET and HEAD are served.\n"]
        if path == "/-/healthy":
            return HTTPStatus.OK, plain, [b"Exporter is healthy.\n"]
        if path.rstrip("/") != "/metrics":
            return HTTPStatus.NOT_FOUND, plain, [b"Metrics are at /metrics.\n"]
        try:
            return HTTPStatus.OK, CONTENT_TYPE, await self._metrics()
        except Exception:
            log.exception("metrics_failed")
            return (
                HTTPStatus.INTERNAL_SERVER_ERROR,
                plain,
                [b"Reading the metrics failed; the broker's log says why.\n"],
            )

    async def _metrics(self) -> list[bytes]:
        """Return the text in chunks small enough to write without holding the loop."""
        chunks: list[bytes] = []
        text = bytearray()
        for piece in self._render():
            text += piece
            if len(text) >= _CHUNK_BYTES:
                chunks.append(bytes(text))
                text.clear()
            await asyncio.sleep(0)
        return [*chunks, bytes(text)]
