"""The package that docs/plugins.md shows, installed beside a broker: everything it says happens, in
this process and in one of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.common.clock import SystemClock
from orbitmq.common.service import StartFailedError
from orbitmq.embedded.cluster import ClusterSettings, EmbeddedCluster
from orbitmq.message.properties import write
from orbitmq.message.record import decode_all
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from support.broker.two_paths import PULL, SEND
from support.common.installed_packages import install, site_packages

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
PLUGGED = {"messageStorePlugIn": "confidential"}


def blocks(language: str) -> list[str]:
    """The code of that language on the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def install_example(site: Path) -> None:
    (project,) = map(tomllib.loads, blocks("toml"))
    groups = project["project"]["entry-points"]
    points = "".join(
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in each.items())
        for group, each in groups.items()
    )
    install(site, "acme_broker_parts", points, "\n\n".join(blocks("python")))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with site_packages(tmp_path / "site") as site:
        yield site


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(main())


@asynccontextmanager
async def cluster(settings: ClusterSettings) -> AsyncIterator[tuple[RemotingClient, str]]:
    running = EmbeddedCluster(settings)
    await running.start()
    try:
        async with RemotingClient(ClientConfig(), SystemClock()) as client:
            yield client, running.broker_address
    finally:
        await running.stop()


async def ask(
    client: RemotingClient, address: str, code: int, fields: dict[str, str], body: bytes = b""
) -> RemotingCommand:
    return await client.invoke(address, RemotingCommand(code, ext_fields=fields, body=body), 15_000)


async def send(
    client: RemotingClient, address: str, topic: str, body: bytes, **properties: str
) -> RemotingCommand:
    fields = SEND | {
        "b": topic,
        "d": "1",
        "e": "0",
        "i": write({"UNIQ_KEY": f"U-{body.decode()}", **properties}),
    }
    return await ask(client, address, RequestCode.SEND_MESSAGE_V2, fields, body)


async def pull(client: RemotingClient, address: str, topic: str) -> list[StoredMessage]:
    fields = PULL | {"topic": topic, "queueId": "0", "sysFlag": "4"}
    answer = await ask(client, address, RequestCode.PULL_MESSAGE, fields)
    assert answer.code == ResponseCode.SUCCESS, answer
    return list(decode_all(answer.body or b""))


async def delete(client: RemotingClient, address: str, topic: str) -> RemotingCommand:
    return await ask(client, address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})


async def try_everything(client: RemotingClient, broker: str) -> None:
    """What the page says of its parts, as clients see it."""
    refused = await send(client, broker, "orders-eu", b"1")
    assert (refused.code, refused.remark) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "an order needs a key: set KEYS to its number",
    )
    for number, properties in enumerate(({}, {"confidential": "yes"}, {})):
        answer = await send(client, broker, "orders-eu", b"%d" % number, KEYS="k", **properties)
        assert answer.code == ResponseCode.SUCCESS, answer
    found = await pull(client, broker, "orders-eu")
    assert [(message.body, message.properties()["site"]) for message in found] == [
        (b"0", "berlin"),
        (b"2", "berlin"),
    ]
    query = {
        "topic": "orders-eu",
        "key": "k",
        "maxNum": "9",
        "beginTimestamp": "0",
        "endTimestamp": str(1 << 62),
    }
    answer = await ask(client, broker, RequestCode.QUERY_MESSAGE, query)
    assert [message.body for message in decode_all(answer.body or b"")] == [b"0", b"2"]
    host, _, port = broker.rpartition(":")
    for address in (broker, f"{host}:{int(port) - 2}"):
        assert (await delete(client, address, "orders-eu")).code == ResponseCode.NO_PERMISSION
        assert (await delete(client, address, "others")).code == ResponseCode.SUCCESS
    assert [message.body for message in await pull(client, broker, "orders-eu")] == [b"0", b"2"]


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_the_page_s_package_does_what_the_page_says(
    site: Path, flush: str, caplog: pytest.LogCaptureFixture
) -> None:
    install_example(site)

    async def scenario() -> None:
        async with cluster(ClusterSettings(broker=PLUGGED | {"flushDiskType": flush})) as (
            client,
            broker,
        ):
            await try_everything(client, broker)

    with caplog.at_level(logging.DEBUG):
        run(scenario)
    told = [record.getMessage() for record in caplog.records if record.name == "acme_broker_parts"]
    assert sum(line.startswith("sent group=producers ids=") for line in told) == 3
    assert told.count("delivered group=g topic=orders-eu count=2") == 2
    assert any(
        re.fullmatch(r"served peer=127\.0\.0\.1:\d+ code=215 answer=16", line) for line in told
    )
    loaded = [
        record.getMessage()
        for record in caplog.records
        if record.getMessage().startswith("plug_in_loaded")
    ]
    kinds = (
        "access validator",
        "RPC hook",
        "send hook",
        "consume hook",
        "send-back hook",
        "transaction check",
        "store plug-in",
    )
    assert all(any(f"kind={kind!r}" in line for line in loaded) for kind in kinds), loaded


@pytest.mark.parametrize(
    "group", ["access_validators", "rpc_hooks", "send_hooks", "consume_hooks", "store_plugins"]
)
def test_each_part_alone_is_in_force_for_what_the_fast_path_would_serve(
    site: Path, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    install_example(site)
    file = site / "acme_broker_parts-1.0.dist-info/entry_points.txt"
    chosen = re.search(rf"\[orbitmq\.{group}\]\n[^\n]*\n", file.read_text())
    assert chosen is not None
    file.write_text(chosen[0])

    async def scenario() -> None:
        async with cluster(ClusterSettings(broker=PLUGGED if group == "store_plugins" else {})) as (
            client,
            broker,
        ):
            for _ in range(
                2
                # topic and group are known the second time, so that nothing but the part keeps the fast
                # path away
            ):
                await send(client, broker, "orders-eu", b"open", KEYS="k")
                refused = await send(client, broker, "orders-eu", b"keyless")
                assert refused.code == (
                    ResponseCode.MESSAGE_ILLEGAL if group == "send_hooks" else ResponseCode.SUCCESS
                )
                await send(client, broker, "orders-eu", b"hidden", KEYS="k", confidential="yes")
                found = await pull(client, broker, "orders-eu")
            bodies = {message.body for message in found}
            assert (b"keyless" in bodies, b"hidden" in bodies) == (
                group != "send_hooks",
                group != "store_plugins",
            )
            assert [message.properties().get("site") for message in found] == [
                "berlin" if group == "store_plugins" else None
            ] * len(found)
            code = (await delete(client, broker, "orders-eu")).code
            assert code == (
                ResponseCode.NO_PERMISSION if group == "access_validators" else ResponseCode.SUCCESS
            )

    with caplog.at_level(logging.DEBUG, "acme_broker_parts"):
        run(scenario)
    told = [
        re.sub(" .* code=", " ", record.getMessage())
        for record in caplog.records
        if record.name == "acme_broker_parts"
    ]
    assert sum(line.startswith(("served 310 ", "served 11 ")) for line in told) == (
        8 if group == "rpc_hooks" else 0
    )
    assert sum(line.startswith("delivered ") for line in told) == (
        2 if group == "consume_hooks" else 0
    )
    assert sum(line.startswith("sent ") for line in told) == (4 if group == "send_hooks" else 0)


@pytest.mark.parametrize(
    "group",
    [
        *(
            "access_validators",
            "rpc_hooks",
            "send_hooks",
            "consume_hooks",
            "send_back_hooks",
            "store_plugins",
        ),
        *("transaction_checks", "transaction_services"),
    ],
)
def test_a_part_that_cannot_be_loaded_stops_the_start_by_name_and_leaves_the_store_free(
    tmp_path: Path, site: Path, group: str
) -> None:
    install(site, "broken_package", f"[orbitmq.{group}]\nbad = broken_package:Part\n", "Part = 1")
    settings = ClusterSettings(
        store=tmp_path / "store",
        broker={"messageStorePlugIn": "bad"} if group == "store_plugins" else {},
    )

    async def scenario() -> None:
        with pytest.raises(
            StartFailedError,
            match=(
                rf"did not start: the .* bad \(broken_package:Part\) of group orbitmq\.{group}"
                r" cannot be"
            ),
        ):
            await EmbeddedCluster(settings).start()
        (site / "broken_package-1.0.dist-info/entry_points.txt").unlink()
        async with cluster(ClusterSettings(store=tmp_path / "store")) as (client, broker):
            assert (await send(client, broker, "T", b"x")).code == ResponseCode.SUCCESS

    run(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_process_of_its_own_finds_the_package_with_kernels_compiled_or_not(
    site: Path, pure: str
) -> None:
    install_example(site)
    command = [
        sys.executable,
        "-c",
        "from orbitmq.cli.main import main; main()",
        "up",
        "--ephemeral",
        "--json",
    ]
    command += ["--set", "messageStorePlugIn=confidential"]
    environment = os.environ | {
        "ORBITMQ_PURE": pure,
        "PYTHONPATH": os.pathsep.join((str(site), os.environ.get("PYTHONPATH", ""))),
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())

        async def scenario() -> None:
            async with RemotingClient(ClientConfig(), SystemClock()) as client:
                await try_everything(client, found["broker"])

        try:
            run(scenario)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
