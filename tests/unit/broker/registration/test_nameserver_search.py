"""How a broker finds its name servers: by its list, by names, by an address server; and that it
goes on looking.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.testing.manual_clock import ManualClock
from orbitmq.testing.virtual_time import VirtualTimeLoop
from support.broker.nameserver_link import listening, name_server, scenario, staged
from support.common.waiting import until
from support.remoting.peers import run


def test_a_search_for_name_servers_that_fails_in_any_way_is_done_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        searches: list[int] = []
        async with listening() as (_, one), staged(one) as stage:

            async def fail() -> None:
                searches.append(1)
                raise ValueError("no such luck")

            monkeypatch.setattr(stage.link, "refresh", fail)
            object.__setattr__(stage.config, "update_name_server_addr_period", 1)
            again = asyncio.create_task(stage.link._refresh_forever())
            await until(lambda: len(searches) > 2, "it is tried again")
            again.cancel()

    run(test)


def test_no_name_server_at_all_is_allowed() -> None:
    async def test() -> None:
        async with staged(None) as stage:
            await stage.change("three")
            stage.link.period_over()
            assert stage.link.name_servers == {}

    run(test)


@contextlib.contextmanager
def address_server(told: list[str]) -> Iterator[str]:
    """An HTTP server that tells the last of these texts; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/rocketmq/mine" and told[-1] else 404)
            self.end_headers()
            self.wfile.write(told[-1].encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_an_address_server_tells_the_name_servers_and_who_it_no_longer_tells_is_left_alone(
    tmp_path: Path,
) -> None:
    async def test(folder: Path) -> None:
        async with listening() as (first, one), name_server(folder / "b") as two:
            told = [""]
            with address_server(told) as domain:
                settings = {
                    "fetch_namesrv_addr_by_address_server": True,
                    "address_server": domain,
                    "address_server_group": "mine",
                }
                async with staged(None, **settings) as stage:
                    assert stage.link.name_servers == {}
                    for answer, expected in (
                        (f"{one}\n", [one]),
                        (f"{two};{one}", [two, one]),
                        ("", [two, one]),
                        (two, [two]),
                    ):
                        told.append(answer)
                        await stage.link.refresh()
                        await stage.link.settled()
                        assert list(stage.link.name_servers) == expected
                        assert stage.client.name_servers.in_order()
                    await stage.change("three")
                    assert await stage.queues(two, "three") == 4
                    assert first.topics() == [{"one", "two"}]

    scenario(test, tmp_path)


def test_an_address_server_is_asked_again_and_again_under_the_names_that_files_of_the_original_have_for_it(
    tmp_path: Path,
) -> None:
    async def test(folder: Path) -> None:
        async with listening() as (_, one), listening() as (_, two):
            told = [one]
            with address_server(told) as domain:
                settings = {
                    "rmq_address_server_domain": domain,
                    "rmq_address_server_sub_group": "mine",
                }
                async with staged(
                    None, fetch_namesrv_addr_by_address_server=True, **settings
                ) as stage:
                    assert list(stage.link.name_servers) == [one]
                    told.append(two)
                    object.__setattr__(stage.config, "fetch_namesrv_addr_interval", 1)
                    again = asyncio.create_task(stage.link._refresh_forever())
                    await until(
                        lambda: list(stage.link.name_servers) == [two], "the new one is found"
                    )
                    again.cancel()

    scenario(test, tmp_path)


@pytest.mark.parametrize(
    ("key", "by_address_server"),
    [("fetchNamesrvAddrInterval", True), ("updateNameServerAddrPeriod", False)],
)
def test_name_servers_are_searched_as_often_as_is_said(
    monkeypatch: pytest.MonkeyPatch, key: str, by_address_server: bool
) -> None:
    attribute = BrokerConfig.keys_by_name()[key].attribute
    clock = ManualClock()
    loop = VirtualTimeLoop(clock)

    async def test() -> None:
        searched_at_ms: list[int] = []

        async def refresh() -> None:
            searched_at_ms.append(clock.monotonic_ms() - begun_ms)

        with address_server([""]) as domain:
            settings = {
                "fetch_namesrv_addr_by_address_server": by_address_server,
                "rmq_address_server_domain": domain,
                attribute: 3_000,
            }
            async with (
                listening() as (_, one),
                staged(None if by_address_server else one, **settings) as stage,
            ):
                begun_ms = clock.monotonic_ms()
                monkeypatch.setattr(stage.link, "refresh", refresh)
                await loop.advance(7_000)
                stage.config.update(f"{key}=1000\n")
                await loop.advance(4_000)
        assert searched_at_ms == [3_000, 6_000, 9_000, 10_000, 11_000]

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(test())


def test_a_start_does_not_wait_for_an_address_server_that_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orbitmq.remoting.name_servers.LOOKUP_TIMEOUT_MS", 50)

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            domain = f"127.0.0.1:{mute.getsockname()[1]}"
            async with staged(
                None, fetch_namesrv_addr_by_address_server=True, rmq_address_server_domain=domain
            ) as stage:
                assert stage.link.name_servers == {}

    run(test)


def test_names_of_name_servers_may_be_looked_up_and_stand_for_every_address(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with name_server(folder) as one:
            port = one.split(":")[1]
            async with staged(f"localhost:{port}", fetch_name_srv_addr_by_dns_lookup=True) as stage:
                assert stage.link.name_servers[f"127.0.0.1:{port}"]

    scenario(test, tmp_path)


def test_a_new_list_of_name_servers_is_followed(tmp_path: Path) -> None:
    async def test(folder: Path) -> None:
        async with listening() as (first, one), listening() as (second, two), staged(one) as stage:
            stage.config.update(f"namesrvAddr={two}")
            await stage.link.refresh()
            await stage.link.settled()
            assert (first.topics(), second.topics()) == ([{"one", "two"}], [{"one", "two"}])

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path))
        scenario(test, tmp_path)
