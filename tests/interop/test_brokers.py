"""Real brokers register with our name server, and real Java clients send and consume through its
routes.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop import apache, programs, subject
from interop.apache import Release, Server
from interop.conversation import Conversation
from interop.frames import Request, ask
from support.common.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven")]

BINARY_HEADERS = ("-Drocketmq.serialize.type=ROCKETMQ",)
GONE_WITHIN_S = 3.0
MESSAGES = 20


def brokers_of(name_server: str) -> dict[str, Any]:
    """The brokers a name server knows, by name."""
    table: dict[str, Any] = ask(name_server, Request(106)).json()["brokerAddrTable"]
    return table


def wait_for_brokers(name_server: str, *names: str) -> None:
    """Wait until a name server knows these brokers with their topics, and no others."""

    def is_known(name: str) -> bool:
        return (
            ask(name_server, Request(105, {"topic": name})).code == 0
        )  # each broker has a topic of its own name

    wait_until(
        lambda: set(brokers_of(name_server)) == set(names) and all(map(is_known, names)),
        f"{name_server} knows {names}",
    )


def make_topic(broker: Server, name_server: str, topic: str) -> None:
    """Make a topic on one broker and wait until the name server has its route."""
    header = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
    }
    answer = ask(
        broker.address,
        Request(
            17, {**header, "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        ),
    )
    assert answer.code == 0, answer
    wait_until(
        lambda: ask(name_server, Request(105, {"topic": topic})).code == 0, f"the route of {topic}"
    )


@pytest.fixture(scope="module")
def name_server(module_home: Path) -> Iterator[Server]:
    server = subject.name_server(module_home / "names")
    with apache.running(server):
        yield server


@pytest.fixture(scope="module")
def brokers(
    apache_5: Release, apache_4: Release, name_server: Server, module_home: Path
) -> Iterator[dict[str, Server]]:
    """A broker of each release, by version."""
    new = apache.broker(apache_5, module_home / "broker-5", [name_server.address], name="new")
    old = apache.broker(apache_4, module_home / "broker-4", [name_server.address], name="old")
    with apache.running(new, old):
        wait_for_brokers(name_server.address, "new", "old")
        yield {apache_5.version: new, apache_4.version: old}


@pytest.mark.parametrize("headers", ["json", "binary"])
@pytest.mark.parametrize("broker_version", ["5.5.0", "4.9.7"])
def test_the_real_client_sends_and_consumes_through_our_routes(
    release: Release,
    broker_version: str,
    headers: str,
    brokers: dict[str, Server],
    name_server: Server,
    tmp_path: Path,
) -> None:
    topic = f"Mail-{release.version}-{broker_version}-{headers}".replace(".", "_")
    make_topic(brokers[broker_version], name_server.address, topic)
    options = BINARY_HEADERS if headers == "binary" else ()
    lines = programs.round_trip(release, tmp_path, name_server.address, topic, MESSAGES, options)
    keys = {f"key-{number}" for number in range(MESSAGES)}
    sent = [line for line in lines if line["event"] == "sent"]
    assert {line["key"] for line in sent if line["status"] == "SEND_OK"} == keys
    assert {line["broker"] for line in sent} == {"new" if broker_version == "5.5.0" else "old"}
    consumed = [line for line in lines if line["event"] == "consumed"]
    assert {line["key"] for line in consumed if line["whole"]} == keys
    assert all(line["whole"] for line in consumed)
    assert lines[-1] == {"event": "done", "complete": True}


@pytest.mark.parametrize(
    ("ending", "settings", "options"),
    [
        pytest.param(signal.SIGKILL, {}, (), id="killed"),
        pytest.param(signal.SIGTERM, {"compressedRegister": "true"}, BINARY_HEADERS, id="stopped"),
    ],
)
def test_a_broker_that_ends_is_gone_at_once(
    ending: signal.Signals,
    settings: dict[str, str],
    options: tuple[str, ...],
    apache_5: Release,
    apache_4: Release,
    tmp_path: Path,
) -> None:
    """Killed: its connection closes. Stopped: it unregisters; those registered compressed, and with
    binary headers.
    """
    if subject.IS_ORIGINAL and settings:
        pytest.skip("the original cannot read the compressed registration of a 5.5.0 broker")
    names = subject.name_server(tmp_path / "names")
    new = apache.broker(
        apache_5, tmp_path / "new", [names.address], name="new", settings=settings, options=options
    )
    old = apache.broker(
        apache_4, tmp_path / "old", [names.address], name="old", settings=settings, options=options
    )
    with apache.running(names), apache.running(new, old):
        wait_for_brokers(names.address, "new", "old")
        for broker, left in ((new, {"old"}), (old, set[str]())):
            broker.send_signal(ending)
            broker.wait_ended(60)
            wait_until(
                lambda left=left: set(brokers_of(names.address)) == left,  # type: ignore[misc]
                f"only {left} are left",
                seconds=GONE_WITHIN_S,
            )
        assert ask(names.address, Request(206)).json()["topicList"] == []


def test_a_name_server_that_was_restarted_learns_its_brokers_again(
    apache_4: Release, tmp_path: Path
) -> None:
    first = subject.name_server(tmp_path / "names")
    broker = apache.broker(
        apache_4,
        tmp_path / "broker",
        [first.address],
        settings={"registerNameServerPeriod": 10_000},
    )
    with apache.running(broker):
        with apache.running(first):
            wait_for_brokers(first.address, "broker-a")
            ask(first.address, Request(100, {"namespace": "kept", "key": "k", "value": "v"}))
        with apache.running(first):
            assert ask(first.address, Request(101, {"namespace": "kept", "key": "k"})).fields == {
                "value": "v"
            }
            wait_for_brokers(first.address, "broker-a")


def test_a_slave_acts_for_its_dead_master_as_with_the_original(
    apache_5: Release, tmp_path: Path
) -> None:
    acting = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
    original = apache.name_server(apache_5, tmp_path / "original", acting)
    ours = subject.name_server(tmp_path / "ours", acting)
    both = [original.address, ours.address]
    settings = {"enableSlaveActingMaster": "true", "enableRemoteEscape": "true"}
    master = apache.broker(apache_5, tmp_path / "master", both, name="pair", settings=settings)
    slave = apache.broker(
        apache_5, tmp_path / "slave", both, name="pair", broker_id=1, settings=settings
    )
    with apache.running(original, ours), apache.running(master, slave):
        for address in both:
            wait_until(
                lambda address=address: (  # type: ignore[misc]
                    len(brokers_of(address).get("pair", {}).get("brokerAddrs", {})) == 2
                ),
                "master and slave",
            )
        talk = Conversation(original.address, ours.address)
        asked = [
            Request(105, {"topic": "pair"}),
            Request(105, {"topic": "pair"}, version=399),
            Request(106),
        ]
        asked += [
            Request(901, {"clusterName": "DefaultCluster", "brokerName": "pair"}),
            Request(105, {"topic": "rmq_sys_SYNC_BROKER_MEMBER_pair"}),
        ]
        for request in asked:
            talk.ask_settled(request)
        master.send_signal(signal.SIGKILL)
        for address in both:
            wait_until(
                lambda address=address: set(brokers_of(address)["pair"]["brokerAddrs"]) == {"~1"},  # type: ignore[misc]
                "the master is forgotten",
            )
        for request in asked:
            talk.ask_settled(request)
        route = ask(ours.address, Request(105, {"topic": "pair"})).json()
        assert route["brokerDatas"][0]["brokerAddrs"]["0"] == slave.address
        assert route["queueDatas"][0]["perm"] & 2 == 0
        talk.close_all()
        talk.check()
