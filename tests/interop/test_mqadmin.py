"""The real `mqadmin`, pointed at the original name server and at ours, prints the same, while the same real brokers are registered at both.

What must differ is taken out before the comparison: the name server's address, measured times and rates, and the order of lines
where the original prints a hash map. Each command also has a text that must be in its output, so that two equal failures do not pass.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop import apache, programs, subject
from interop.apache import Release, Server, wait_until
from interop.conversation import comparable_config
from interop.frames import Request, ask
from interop.programs import Admin

pytestmark = [pytest.mark.interop, pytest.mark.needs("java", "maven")]


@dataclass(frozen=True)
class Cluster:
    """Two name servers and two brokers, a 5.5.0 and a 4.9.7, that are registered at both."""

    original: Server
    ours: Server
    broker_5: Server
    broker_4: Server

    @property
    def name_servers(self) -> tuple[str, str]:
        return self.original.address, self.ours.address

    def wait_for_topic(self, topic: str, brokers: int) -> None:
        """Wait until both name servers know that topic on so many brokers."""

        def count(address: str) -> int:
            answer = ask(address, Request(105, {"topic": topic}))
            return len(answer.json()["brokerDatas"]) if answer.code == 0 else 0

        for address in self.name_servers:
            wait_until(lambda address=address: count(address) == brokers, f"{address} knows {topic} on {brokers} brokers")  # type: ignore[misc]


@pytest.fixture(scope="module")
def cluster(apache_5: Release, apache_4: Release, module_home: Path) -> Iterator[Cluster]:
    original = apache.name_server(apache_5, module_home / "original")
    ours = subject.name_server(module_home / "ours")
    both = [original.address, ours.address]
    broker_5 = apache.broker(apache_5, module_home / "broker-5", both)
    broker_4 = apache.broker(apache_4, module_home / "broker-4", both, name="broker-b", cluster="OldCluster")
    with apache.running(original, ours), apache.running(broker_5, broker_4):
        whole = Cluster(original, ours, broker_5, broker_4)
        whole.wait_for_topic("TBW102", 2)
        yield whole


@pytest.fixture(scope="module", params=["5.5.0", "4.9.7"])
def admin(request: pytest.FixtureRequest, apache_5: Release, apache_4: Release, module_home: Path) -> Iterator[Admin]:
    """`mqadmin` of each release in turn."""
    release = apache_5 if request.param == "5.5.0" else apache_4
    with programs.admin(release, module_home / f"admin-{release.version}") as shell:
        yield shell


def normal(text: str, name_server: str) -> list[str]:
    """What was printed, as lines in one order, without what may differ between two runs of the same command."""
    text = text.replace(name_server, "NAMESRV")
    text = re.sub(r"\d+\.\d+(?!\.)\w*", "RATE", re.sub(r"\b(127\.0\.0\.1):(\d+)", r"loopback:\2", text))
    text = re.sub(r"\b\d{13}\b|\b\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d[:.,]?\d*", "TIME", text)
    text = re.sub(r"\b[0-9A-F]{32}\b", "ID", text)
    return sorted(" ".join(line.split()) for line in text.splitlines())


def same(admin: Admin, cluster: Cluster, *command: str, shows: str, unless: str = "Exception") -> str:
    """Run a command against each name server; both print the same, `shows` among it. Returns what the original's user saw."""
    printed = [admin(*command, "-n", address) for address in cluster.name_servers]
    assert normal(printed[1], cluster.ours.address) == normal(printed[0], cluster.original.address), f"mqadmin {' '.join(command)}"
    assert shows in printed[0], f"mqadmin {' '.join(command)} printed:\n{printed[0]}"
    if unless:
        assert unless not in printed[0], f"mqadmin {' '.join(command)} printed:\n{printed[0]}"
    return printed[0]


def test_clusters_are_listed_the_same(admin: Admin, cluster: Cluster) -> None:
    for options in ([], ["-m"], ["-c", "OldCluster"]):
        same(admin, cluster, "clusterList", *options, shows="broker-b", unless="")  # 4.9.7 stumbles over a key of a 5.5.0 broker
    same(admin, cluster, "brokerStatus", "-c", "DefaultCluster", shows="bootTimestamp")
    same(admin, cluster, "brokerStatus", "-c", "nowhere", shows="", unless="")


def test_topics_are_listed_the_same(admin: Admin, cluster: Cluster) -> None:
    same(admin, cluster, "topicList", shows="rmq_sys_SYNC_BROKER_MEMBER_broker-a")
    same(admin, cluster, "topicList", "-c", shows="OldCluster")
    same(admin, cluster, "topicClusterList", "-t", "TBW102", shows="OldCluster")


def test_routes_are_shown_the_same(admin: Admin, cluster: Cluster) -> None:
    for topic in ("TBW102", "broker-a", "OldCluster"):
        same(admin, cluster, "topicRoute", "-t", topic, shows="brokerDatas")
        same(admin, cluster, "topicRoute", "-t", topic, "-l", shows="127.0.0.1")
    same(admin, cluster, "topicRoute", "-t", "absent", shows="CODE: 17", unless="")
    same(admin, cluster, "topicStatus", "-t", "SELF_TEST_TOPIC", shows="broker-a")
    same(admin, cluster, "allocateMQ", "-t", "TBW102", "-i", "10.0.0.1,10.0.0.2", shows="10.0.0.2")


def test_a_topic_is_made_changed_and_deleted_the_same(admin: Admin, cluster: Cluster) -> None:
    for name in ("DefaultCluster", "OldCluster"):
        same(admin, cluster, "updateTopic", "-c", name, "-t", "Made", "-r", "3", "-w", "5", shows="success")
    cluster.wait_for_topic("Made", 2)
    same(admin, cluster, "topicRoute", "-t", "Made", "-l", shows="127.0.0.1")
    same(admin, cluster, "updateTopicPerm", "-b", cluster.broker_5.address, "-t", "Made", "-p", "4", shows="")
    for address in cluster.name_servers:
        wait_until(lambda address=address: '"perm":4' in ask(address, Request(105, {"topic": "Made"})).body.decode(), "perm 4 arrives")  # type: ignore[misc]
    same(admin, cluster, "topicRoute", "-t", "Made", shows='"perm":4')
    same(admin, cluster, "deleteTopic", "-c", "OldCluster", "-t", "Made", shows="success")
    cluster.wait_for_topic("Made", 1)
    same(admin, cluster, "deleteTopic", "-c", "DefaultCluster", "-t", "Made", shows="success")
    same(admin, cluster, "topicRoute", "-t", "Made", shows="CODE: 17", unless="")
    same(admin, cluster, "deleteTopic", "-c", "nowhere", "-t", "Made", shows="", unless="")


def test_an_ordered_topic_has_the_same_order_configuration(admin: Admin, cluster: Cluster) -> None:
    same(admin, cluster, "updateTopic", "-c", "DefaultCluster", "-t", "Ordered", "-o", "true", shows="success")
    cluster.wait_for_topic("Ordered", 1)
    same(admin, cluster, "updateOrderConf", "-t", "Ordered", "-m", "get", shows="broker-a:8")
    same(admin, cluster, "updateOrderConf", "-t", "Ordered", "-m", "put", "-v", "broker-a:4;broker-b:2", shows="success")
    same(admin, cluster, "updateOrderConf", "-t", "Ordered", "-m", "get", shows="broker-a:4;broker-b:2")
    same(admin, cluster, "updateOrderConf", "-t", "Ordered", "-m", "delete", shows="success")
    same(admin, cluster, "updateOrderConf", "-t", "Ordered", "-m", "get", shows="CODE: 22", unless="")
    same(admin, cluster, "deleteTopic", "-c", "DefaultCluster", "-t", "Ordered", shows="success")


def test_key_value_configuration_is_put_and_deleted_the_same(admin: Admin, cluster: Cluster) -> None:
    same(admin, cluster, "updateKvConfig", "-s", "space", "-k", "key", "-v", "a b=ü", shows="success")
    kept = [ask(address, Request(101, {"namespace": "space", "key": "key"})).fields for address in cluster.name_servers]
    assert kept == [{"value": "a b=ü"}] * 2
    for _ in range(2):
        same(admin, cluster, "deleteKvConfig", "-s", "space", "-k", "key", shows="success")
    assert [ask(address, Request(101, {"namespace": "space", "key": "key"})).code for address in cluster.name_servers] == [22, 22]


def test_the_name_servers_configuration_is_shown_and_changed_the_same(admin: Admin, cluster: Cluster) -> None:
    shown = [comparable_config(admin("getNamesrvConfig", "-n", address).splitlines(), "=  ") for address in cluster.name_servers]
    assert shown[1] == shown[0]
    assert shown[0]["orderMessageEnable"] == "false"
    same(admin, cluster, "updateNamesrvConfig", "-k", "enableTopicList", "-v", "false", shows="enableTopicList : false")
    same(admin, cluster, "updateNamesrvConfig", "-k", "enableTopicList", "-v", "true", shows="enableTopicList : true")
    for key in ("kvConfigPath", "configStorePath", "rocketmqHome", "configBlackList"):
        same(admin, cluster, "updateNamesrvConfig", "-k", key, "-v", "elsewhere", shows="Can not update config in black list.", unless="")
    same(admin, cluster, "updateNamesrvConfig", "-k", "noSuchKey", "-v", "1", shows="noSuchKey : 1")


@pytest.mark.parametrize("name", ["broker-a", "broker-b"])
def test_write_permission_is_wiped_and_added_the_same(admin: Admin, cluster: Cluster, name: str) -> None:
    same(admin, cluster, "wipeWritePerm", "-b", name, shows="OK, ")
    same(admin, cluster, "topicRoute", "-t", "TBW102", shows='"perm":5')
    same(admin, cluster, "addWritePerm", "-b", name, shows="OK, ")
    same(admin, cluster, "topicRoute", "-t", "TBW102", shows='"perm":6')
    same(admin, cluster, "wipeWritePerm", "-b", "absent", shows="OK, 0")
    same(admin, cluster, "addWritePerm", "-b", "absent", shows="OK, 0")


def test_consumer_groups_are_administered_the_same(admin: Admin, cluster: Cluster) -> None:
    same(admin, cluster, "updateSubGroup", "-c", "DefaultCluster", "-g", "group", shows="success")
    same(admin, cluster, "getConsumerConfig", "-g", "group", shows="broker-a")
    same(admin, cluster, "consumerProgress", shows="#Group")
    same(admin, cluster, "consumerProgress", "-g", "group", shows="", unless="")
    same(admin, cluster, "consumerConnection", "-g", "group", shows="", unless="")
    same(admin, cluster, "statsAll", shows="#Topic")
    same(admin, cluster, "deleteSubGroup", "-c", "DefaultCluster", "-g", "group", shows="success")


def test_brokers_are_found_by_their_cluster_the_same(admin: Admin, cluster: Cluster) -> None:
    for command in ("getBrokerConfig", "cleanExpiredCQ", "cleanUnusedTopic"):
        same(admin, cluster, command, "-c", "DefaultCluster", shows="")
    same(admin, cluster, "updateBrokerConfig", "-c", "DefaultCluster", "-k", "maxDelayTime", "-v", "40", shows="success")


def test_messages_are_sent_and_found_the_same(admin: Admin, cluster: Cluster) -> None:
    same(admin, cluster, "updateTopic", "-c", "DefaultCluster", "-t", "Mail", "-r", "1", "-w", "1", shows="success")
    cluster.wait_for_topic("Mail", 1)
    same(admin, cluster, "sendMessage", "-t", "Mail", "-p", "hello", "-k", "key1", shows="SEND_OK")
    wait_until(lambda: "broker-a" in admin("topicStatus", "-t", "Mail", "-n", cluster.original.address), "the topic has a queue")
    same(admin, cluster, "topicStatus", "-t", "Mail", shows="broker-a")
    same(admin, cluster, "queryMsgByOffset", "-t", "Mail", "-b", "broker-a", "-i", "0", "-o", "0", shows="key1")
    same(admin, cluster, "consumeMessage", "-t", "Mail", "-c", "1", shows="hello")
    same(admin, cluster, "producerConnection", "-g", "nobody", "-t", "Mail", shows="", unless="")
