"""`with LocalCluster() as mq:`: real servers for a test, and nothing of them afterwards, however it
ends.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.common.errors import ConfigurationError, RequestRefusedError
from orbitmq.common.service import StartFailedError
from orbitmq.testing import LocalCluster, ManualClock
from support.common.waiting import wait_until
from support.embedded.local_cluster import bodies, nothing_left, route, send


def test_what_is_sent_is_read_and_the_name_server_knows_where() -> None:
    with LocalCluster() as mq:
        send(mq, b"1", b"2")
        assert bodies(mq) == [b"1", b"2"]
        assert mq.brokers == ("broker-a",)
        assert list(route(mq)) == ["broker-a"]
        assert (mq.store() / "commitlog").is_dir()
        assert mq.broker_address() == mq.broker_address("broker-a") != mq.name_server


def test_several_brokers_have_names_stores_and_topics_of_their_own() -> None:
    with LocalCluster(brokers=["east", "west"], topics={"orders": 3, "logs": 1}) as mq:
        assert route(mq, "orders") == {"east": 3, "west": 3}
        assert route(mq, "logs") == {"east": 1, "west": 1}
        mq.create_topic("later", queues=2)
        assert route(mq, "later") == {"east": 2, "west": 2}
        send(mq, b"e", broker="east", topic="orders")
        send(mq, b"w", broker="west", topic="orders")
        assert (bodies(mq, "east", "orders"), bodies(mq, "west", "orders")) == ([b"e"], [b"w"])
        assert mq.store("east") != mq.store("west")


def test_a_list_of_topics_gets_four_queues_each_and_a_refused_name_says_why() -> None:
    with LocalCluster(topics=["orders"]) as mq:
        assert route(mq, "orders") == {"broker-a": 4}
        with pytest.raises(
            RequestRefusedError, match=r"broker-a refused to create the topic: .*bad name"
        ):
            mq.create_topic("bad name")


def test_it_is_used_by_async_with_beside_a_loop_of_the_test(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with LocalCluster(topics=["T"]) as mq:
            await asyncio.to_thread(send, mq, b"x")
            assert await asyncio.to_thread(bodies, mq) == [b"x"]
            mq.restart()
            assert await asyncio.to_thread(bodies, mq) == [b"x"]

    with nothing_left(tmp_path):
        asyncio.run(scenario())


def test_two_clusters_live_beside_each_other_and_one_may_be_started_again() -> None:
    first = LocalCluster()
    with first, LocalCluster() as second:
        send(first, b"first")
        send(second, b"second")
        assert (bodies(first), bodies(second)) == ([b"first"], [b"second"])
    with first:
        assert route(first) == {}


def test_keys_of_the_configuration_reach_every_broker() -> None:
    with (
        LocalCluster(brokers=2, broker={"autoCreateTopicEnable": "false"}) as mq,
        pytest.raises(AssertionError, match="not exist"),
    ):
        send(mq, b"x", broker="broker-b")


@pytest.mark.parametrize(
    "options",
    [{}, {"brokers": 3}, {"partitions": True}, {"virtual_clock": True}, {"processes": True}],
)
def test_thread_ports_processes_and_folders_are_gone_afterwards(
    tmp_path: Path, options: dict[str, object]
) -> None:
    with nothing_left(tmp_path):
        with LocalCluster(**options) as mq:  # type: ignore[arg-type]
            send(mq, b"x", broker=mq.brokers[-1])
            ports = [
                int(address.partition(":")[2])
                for address in (mq.name_server, *map(mq.broker_address, mq.brokers))
            ]
            assert list(tmp_path.iterdir())
        for port in ports:
            socket.create_server(("127.0.0.1", port)).close()


def test_they_are_gone_too_when_the_test_fails_with_a_broker_killed(tmp_path: Path) -> None:
    def fail() -> None:
        with LocalCluster(brokers=2) as mq:
            mq.kill("broker-a")
            raise ZeroDivisionError

    with nothing_left(tmp_path), pytest.raises(ZeroDivisionError):
        fail()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"broker": {"flushDiskType": "SOMETIMES"}}, "flushDiskType"),
        ({"topics": ["bad name"]}, "bad name"),
        ({"broker": {"brokerRole": "NOBODY"}, "processes": True}, "ended instead of starting"),
    ],
)
def test_a_start_that_fails_says_why_and_leaves_nothing(
    tmp_path: Path, options: dict[str, object], why: str
) -> None:
    with (
        nothing_left(tmp_path),
        pytest.raises((StartFailedError, RequestRefusedError), match=why),
        LocalCluster(**options),  # type: ignore[arg-type, arg-type, arg-type, arg-type, arg-type, arg-type]
    ):
        pass


def test_a_start_whose_port_is_taken_leaves_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, nothing_left(tmp_path):
        port = taken.getsockname()[1]
        with (
            pytest.raises(StartFailedError, match=f"name server did not start: .*{port}"),
            LocalCluster(name_server_port=port),
        ):
            pass


def test_a_start_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(passes: int) -> None:
        starting = asyncio.create_task(LocalCluster(brokers=2).__aenter__())
        for _ in range(passes):
            await asyncio.sleep(0.001)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    with nothing_left(tmp_path):
        for passes in (0, 1, 5, 20):
            asyncio.run(scenario(passes))


def test_an_end_that_is_given_up_leaves_nothing_either(tmp_path: Path) -> None:
    async def scenario() -> None:
        mq = await LocalCluster().__aenter__()
        ending = asyncio.create_task(mq.__aexit__())
        await asyncio.sleep(0)
        ending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ending

    with nothing_left(tmp_path):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"brokers": 0}, "brokers=0"),
        ({"brokers": "broker-a"}, "a list of distinct names"),
        ({"brokers": ["a", "a"]}, "distinct names"),
        ({"broker": {"listenPort": "1"}}, "listenPort: LocalCluster sets this itself"),
        ({"topics": "orders"}, "a list of names"),
        ({"processes": True, "virtual_clock": True}, "the machine's clock"),
        ({"processes": True, "clock": ManualClock()}, "the machine's clock"),
        (
            {"virtual_clock": True, "broker": {"enableShutdownGracefully": "true"}},
            "a clock that stands still",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    options: dict[str, object], why: str
) -> None:
    with pytest.raises(ConfigurationError, match=why):
        LocalCluster(**options)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error")
def test_before_its_start_and_after_its_end_a_cluster_says_so() -> None:
    mq = LocalCluster(virtual_clock=True, partitions=True)
    for _ in range(2):
        for call in (
            lambda: mq.create_topic("T"),
            lambda: mq.advance(1),
            mq.kill,
            mq.restart,
            mq.partition,
            mq.broker_address,
            mq.store,
        ):
            with pytest.raises(
                RuntimeError,
                match=r"the cluster is not running: use it as `with LocalCluster\(\) as mq:`",
            ):
                call()
        mq.heal()
        gc.collect()  # a coroutine that nobody awaited says so now
        with mq:
            mq.advance(1)


def test_a_cluster_that_is_not_started_and_a_broker_that_is_not_there_are_named() -> None:
    mq = LocalCluster()
    with pytest.raises(RuntimeError, match="with LocalCluster"):
        _ = mq.name_server
    with mq:
        with pytest.raises(ValueError, match="no broker 'broker-z'; the brokers are broker-a"):
            mq.kill("broker-z")
        with pytest.raises(ConfigurationError, match="partitions=True"):
            mq.partition()
        with pytest.raises(ConfigurationError, match="virtual_clock=True"):
            mq.advance(1)
        with pytest.raises(RuntimeError, match="already started"):
            mq.__enter__()
        send(mq, b"it goes on")


_HOLDER = """
import sys, time
from orbitmq.testing import LocalCluster
with LocalCluster(processes=True) as mq:
    print(mq.broker_address(), flush=True)
    time.sleep(600)
"""


def test_brokers_that_are_processes_end_with_a_test_process_that_is_killed(tmp_path: Path) -> None:
    environment = os.environ | {
        "TMPDIR": str(tmp_path)
    }  # nobody is left who could remove its folder
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER], stdout=subprocess.PIPE, text=True, env=environment
    ) as holder:
        assert holder.stdout is not None
        host, _, port = holder.stdout.readline().strip().partition(":")
        socket.create_connection((host, int(port)), 5).close()
        os.kill(holder.pid, signal.SIGKILL)

        def is_gone() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((host, int(port))) != 0

        wait_until(is_gone, "the broker ends")
