"""Admin values: a broker's runtime state, the choice of masters, and attribute changes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.admin.calls import addresses_to_read, chosen_masters
from orbitmq.admin.cluster import BrokerRuntime
from orbitmq.admin.topics import attribute_changes
from orbitmq.common.errors import OrbitError
from orbitmq.protocol.bodies.nameserver import BrokerData, ClusterInfo

attributes = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("xyz"))


@given(attributes, attributes)
def test_the_changes_make_the_new_attributes_of_the_old_ones(
    before: dict[str, str], after: dict[str, str]
) -> None:
    made = dict(before)
    for signed, value in attribute_changes(before, after).items():
        if signed.startswith("+"):
            made[signed[1:]] = value
        else:
            del made[signed[1:]]
    assert made == after
    assert not attribute_changes(after, after)


BROKERS = {
    "a": BrokerData("east", "a", {0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}),
    "b": BrokerData("east", "b", {0: "10.0.0.3:10911"}),
    "c": BrokerData("west", "c", {1: "10.0.0.4:10911"}),
}
EAST_AND_WEST = ClusterInfo(BROKERS, {"east": ["b", "a"], "west": ["c"]})
EAST = ClusterInfo({name: BROKERS[name] for name in "ab"}, {"east": ["b", "a"]})


@pytest.mark.parametrize(
    ("info", "cluster", "broker", "masters"),
    [
        (EAST, None, None, {"a": "10.0.0.1:10911", "b": "10.0.0.3:10911"}),
        (EAST_AND_WEST, "east", None, {"a": "10.0.0.1:10911", "b": "10.0.0.3:10911"}),
        (EAST_AND_WEST, None, "b", {"b": "10.0.0.3:10911"}),
        (EAST_AND_WEST, None, "10.0.0.2:10911", {"a": "10.0.0.1:10911"}),
    ],
)
def test_changes_go_to_the_masters_that_are_meant(
    info: ClusterInfo, cluster: str | None, broker: str | None, masters: dict[str, str]
) -> None:
    assert chosen_masters(info, cluster, broker) == masters


@pytest.mark.parametrize(
    ("info", "cluster", "broker", "words"),
    [
        (ClusterInfo(), None, None, "no broker is registered; start one"),
        (
            EAST_AND_WEST,
            None,
            None,
            r"there are several clusters \(east, west\): name one of them, or a broker",
        ),
        (EAST_AND_WEST, "north", None, "there is no cluster north; there are east, west"),
        (EAST_AND_WEST, None, "z", "no broker z is registered; there are a, b, c"),
        (
            EAST_AND_WEST,
            "west",
            None,
            "nothing was changed: c has no master at the moment; wait until it is back, or name one broker",
        ),
    ],
)
def test_where_masters_cannot_be_told_the_remedy_is(
    info: ClusterInfo, cluster: str | None, broker: str | None, words: str
) -> None:
    with pytest.raises(OrbitError, match=words):
        chosen_masters(info, cluster, broker)


def test_a_broker_is_read_at_its_master_or_at_its_first_replica() -> None:
    assert addresses_to_read(BROKERS.values()) == {
        "a": "10.0.0.1:10911",
        "b": "10.0.0.3:10911",
        "c": "10.0.0.4:10911",
    }


def test_a_broker_says_what_it_does_in_the_names_of_either_release() -> None:
    entries = {
        "brokerVersionDesc": "V4_9_7",
        "bootTimestamp": "1700000000000",
        "putTps": "12.5 3.0 1.0",
        "getTransferedTps": "7.0 3.0 1.0",
        "msgPutTotalTodayMorning": "10",
        "msgPutTotalTodayNow": "25",
        "commitLogDiskRatio": "0.42",
        "commitLogMaxOffset": "4711",
    }
    found = BrokerRuntime.of(entries)
    assert (found.version, found.boot_ms, found.put_per_s, found.get_per_s) == (
        "V4_9_7",
        1_700_000_000_000,
        12.5,
        7.0,
    )
    assert (found.put_today, found.got_today, found.disk_ratio, found.log_end_offset) == (
        15,
        None,
        0.42,
        4711,
    )
    assert (
        BrokerRuntime.of(
            {"putTps": "  ", "getTransferredTps": "2.0", "bootTimestamp": "x"}
        ).get_per_s
        == 2.0
    )


def test_a_command_that_asks_a_cluster_loads_no_server() -> None:
    program = (
        "import sys; from orbitmq.admin import Admin; from orbitmq.cli import broker, cluster,"
        " group, message, topic;import orbitmq.client.producer.producer;"
        " Admin('127.0.0.1:1').messages; print(sorted(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    for server in (
        "orbitmq.broker",
        "orbitmq.nameserver",
        "orbitmq.store",
        "orbitmq.embedded",
        "rich",
        "yaml",
        "cryptography",
    ):
        assert f"'{server}'" not in loaded
