"""Lists of name servers: their text form, their order, and their lookup at an address server."""

from __future__ import annotations

import asyncio
import http.server
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from orbitmq.common.errors import ConfigurationError, RemoteUnavailableError
from orbitmq.remoting.name_servers import (
    NameServerList,
    address_server_url,
    look_up,
    parse_list,
    split_address,
)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("10.0.0.1:9876", ["10.0.0.1:9876"]),
        (" a:1 ; b:2;;", ["a:1", "b:2"]),
        ("a:1,b:2", ["a:1", "b:2"]),
        ("[2001:db8::1]:9876;localhost:9876", ["[2001:db8::1]:9876", "localhost:9876"]),
        ("", []),
        (" ; ", []),
    ],
)
def test_a_list_is_separated_by_semicolons(text: str, addresses: list[str]) -> None:
    assert parse_list(text) == addresses


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("host:9876", ("host", 9876)),
        ("[::1]:1", ("::1", 1)),
        ("http://host:65535", ("host", 65535)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address", ["host", "host:", ":9876", "host:-1", "host:9876x", "host:٣", "", "a:1;b"]
)
def test_what_is_no_address_is_told_with_an_example(address: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match="is not an address of the form host:port; several are separated by",
    ):
        parse_list(address) if ";" in address else split_address(address)


@pytest.mark.parametrize("address", ["host:0", "host:65536"])
def test_a_port_that_cannot_be_is_told_as_such(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the port \d+ is not between 1 and 65535"):
        split_address(address)


def test_the_one_in_use_comes_first_and_the_others_follow_in_a_circle() -> None:
    names = NameServerList(["a:1", "b:1", "c:1", "a:1"])
    names.use("b:1")
    assert names.in_order() == ["b:1", "c:1", "a:1"]
    names.use("z:1")
    assert names.in_order() == ["b:1", "c:1", "a:1"]
    names.update(["c:1", "b:1"])
    assert names.in_order() == ["b:1", "c:1"]
    names.update(["d:1"])
    assert names.in_order() == ["d:1"]
    names.update([])
    assert names.in_order() == []


def test_clients_begin_at_different_name_servers() -> None:
    assert {
        NameServerList(["a:1", "b:1", "c:1"], random.Random(seed)).in_order()[0]
        for seed in range(30)
    } == {"a:1", "b:1", "c:1"}


@pytest.mark.parametrize(
    ("arguments", "url"),
    [
        (("jmenv.example", "nsaddr"), "http://jmenv.example:8080/rocketmq/nsaddr"),
        (("jmenv.example:80", "nsaddr"), "http://jmenv.example:80/rocketmq/nsaddr"),
        (
            ("jmenv.example", "nsaddr", "unit1"),
            "http://jmenv.example:8080/rocketmq/nsaddr-unit1?nofix=1",
        ),
    ],
)
def test_the_address_server_is_asked_where_the_original_asks(
    arguments: tuple[str, ...], url: str
) -> None:
    assert address_server_url(*arguments) == url


@contextmanager
def address_server(status: int, body: bytes) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/rocketmq/nsaddr"
        finally:
            server.shutdown()
            thread.join()


def test_the_address_server_tells_the_list() -> None:
    with address_server(200, b"10.0.0.1:9876;10.0.0.2:9876\n") as url:
        assert asyncio.run(look_up(url)) == ["10.0.0.1:9876", "10.0.0.2:9876"]


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b"", "returned an empty list"),
        (200, b" \n", "returned an empty list"),
        (200, b"<html>hello</html>", "is not an address"),
        (200, b"\xff\xfe", "is not an address"),
        (404, b"10.0.0.1:9876", "404"),
        (500, b"", "500"),
    ],
)
def test_an_address_server_that_tells_no_list_is_unavailable(
    status: int, body: bytes, why: str
) -> None:
    with (
        address_server(status, body) as url,
        pytest.raises(RemoteUnavailableError, match=f"the address server {url}.*{why}"),
    ):
        asyncio.run(look_up(url))


def test_an_address_server_that_is_not_there_or_no_url_is_told() -> None:
    with pytest.raises(RemoteUnavailableError, match="returned no name servers"):
        asyncio.run(look_up("http://127.0.0.1:1/rocketmq/nsaddr"))
    for url in ("file:///etc/passwd", "nsaddr", "ftp://host/x"):
        with pytest.raises(ConfigurationError, match="is not an http address"):
            asyncio.run(look_up(url))
