"""Brokers to measure, ours and Apache's, configured for speed, and the requests besides the load:
topics, queue ends, messages to pull.

A broker registers with a name server only if clients must find it: the cost of name servers is
measured elsewhere.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from _harness import APACHE_JVM_OPTIONS, ask, ask_at, build_mqload
from interop import apache
from orbitmq.message.record import decode_all
from orbitmq.protocol.bodies.clients import HeartbeatData
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from support.common.waiting import wait_until

NOWHERE = "127.0.0.1:9"  # no name server listens there
QUEUES = 8
PULL_COUNT = 32
PULL_TOPIC = "BenchmarkTest"  # exists on every broker from the start
OLD_RELEASE = "4.9.7"
# On a loaded machine a broker replies "busy" after 200 ms, which would lose a round: allow it more
# time.
_PATIENT = {"waitTimeMillsInSendQueue": 10_000, "osPageCacheBusyTimeOutMills": 10_000}
# The launchers configure small files for a quick start: these are the sizes of the releases.
_APACHE = {
    **_PATIENT,
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
}


def release_of(contender: str, apache_version: str) -> apache.Release:
    """Return the release behind this contender's name."""
    return apache.Release(OLD_RELEASE if contender == "apache-4.9" else apache_version)


def broker(
    contender: str,
    home: Path,
    *,
    apache_version: str,
    settings: Mapping[str, object] | None = None,
    name_server: str = NOWHERE,
) -> apache.Server:
    """Return the broker of this contender, `orbitmq`, `apache` or `apache-4.9`, not started yet;
    its store is `home/store`.
    """
    if contender != "orbitmq":
        release = release_of(contender, apache_version).fetch()
        return apache.broker(
            release,
            home,
            [name_server],
            settings={**_APACHE, **(settings or {})},
            options=APACHE_JVM_OPTIONS,
        )
    return own_broker(home, settings=settings, name_server=name_server)


def own_broker(
    home: Path,
    *,
    settings: Mapping[str, object] | None = None,
    name_server: str = NOWHERE,
    source: Path | None = None,
) -> apache.Server:
    """Return our broker, not started yet; from the packages in `source`, if given, instead of the
    installed ones.
    """
    home.mkdir(parents=True)
    port = apache.free_port((-2, 1))
    own = {
        **_PATIENT,
        "listenPort": port,
        "brokerIP1": "127.0.0.1",
        "brokerName": "broker-a",
        "namesrvAddr": name_server,
        "storePathRootDir": home / "store",
    }
    configuration = home / "broker.conf"
    configuration.write_text(
        "".join(f"{key}={value}\n" for key, value in {**own, **(settings or {})}.items())
    )
    command = [str(Path(sys.executable).with_name("mqbroker")), "-c", str(configuration)]
    variables = {
        "ROCKETMQ_HOME": str(home),
        "HOME": str(home),
        **({"PYTHONPATH": str(source)} if source else {}),
    }
    return apache.Server(command, port, home / "console.log", variables)


def first_send() -> RemotingCommand:
    """Return a message to a topic that every broker has, as a client would send it."""
    return RemotingCommand(
        RequestCode.SEND_MESSAGE_V2, ext_fields=_send_fields(0), body=b"the first"
    )


def write_topics(home: Path, names: Sequence[str], queues: int) -> None:
    """Create these topics of a broker before its first start, by writing the file that all releases
    read: creating 10,000 one by one is slow.
    """
    table = {
        name: {
            "topicName": name,
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
        }
        | {"topicSysFlag": 0, "order": False}
        for name in names
    }
    folder = home / "store" / "config"
    folder.mkdir(parents=True)
    version = {"counter": 1, "timestamp": 1_700_000_000_000}
    (folder / "topics.json").write_text(
        json.dumps({"dataVersion": version, "topicConfigTable": table})
    )


class Desk:
    """A connection to a broker for requests besides the load; every refusal is an error."""

    def __init__(self, server: apache.Server) -> None:
        self._peer = socket.create_connection(("127.0.0.1", server.port), timeout=60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        self._peer.close()

    def make_topic(self, topic: str) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(QUEUES),
            "writeQueueNums": str(QUEUES),
            "perm": "6",
        }
        flags = {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        self._demand(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, **flags})

    def make_group(self, group: str) -> None:
        self._demand(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
            {},
            json.dumps({"groupName": group, "consumeEnable": True}).encode(),
        )

    def ends(self, topic: str) -> list[int]:
        """Return the end offset of each of the topic's queues."""
        asked = ({"topic": topic, "queueId": str(queue)} for queue in range(QUEUES))
        return [int(self._demand(RequestCode.GET_MAX_OFFSET, fields)["offset"]) for fields in asked]

    def move_to_end(self, group: str, topic: str) -> None:
        """Commit the end offsets, so that the group's next consumer starts with the
        next message.
        """
        for queue, end in enumerate(self.ends(topic)):
            place = {
                "consumerGroup": group,
                "topic": topic,
                "queueId": str(queue),
                "commitOffset": str(end),
            }
            self._demand(RequestCode.UPDATE_CONSUMER_OFFSET, place)

    def beat(self, heartbeat: HeartbeatData) -> None:
        self._demand(RequestCode.HEART_BEAT, {}, heartbeat.encode())

    def pulled(self, topic: str, queue: int, begin: int) -> int:
        """Return how many messages a consumer gets from an offset of a queue on."""
        fields = {
            "consumerGroup": "filler",
            "topic": topic,
            "queueId": str(queue),
            "maxMsgNums": str(PULL_COUNT),
            "sysFlag": "4",
        }
        fields |= {
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        count = 0
        while True:
            answer = ask(
                self._peer,
                RemotingCommand(
                    RequestCode.PULL_MESSAGE,
                    ext_fields={**fields, "queueOffset": str(begin + count)},
                ),
            )
            if answer.code != 0:
                return count
            count += sum(1 for _ in decode_all(answer.body or b""))

    def timer_count(self) -> int:
        """Return the number of pending timer messages."""
        return int(self._runtime_info()["timerCongestNum"])

    def timer_holds(self, count: int) -> bool:
        """Return whether this many timer messages are in the wheel, and none is still on its way
        there.
        """
        info = self._runtime_info()
        return int(info["timerCongestNum"]) >= count and int(info["timerOffsetBehind"]) == 0

    def _runtime_info(self) -> dict[str, str]:
        answer = ask(self._peer, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        table: dict[str, str] = json.loads(answer.body or b"{}")["table"]
        return table

    def send_one_more(self, queue: int) -> None:
        self._demand(RequestCode.SEND_MESSAGE_V2, _send_fields(queue), b"one more")

    def _demand(
        self, code: RequestCode, fields: dict[str, str], body: bytes | None = None
    ) -> dict[str, str]:
        answer = ask(self._peer, RemotingCommand(code, ext_fields=fields, body=body))
        if answer.code != 0:
            raise RuntimeError(f"{code.name} {fields}: the broker answered {answer!r}")
        return answer.ext_fields or {}


def wait_for_route(name_server: str, topic: str) -> None:
    """Wait until clients can find the topic."""
    question = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})
    wait_until(
        lambda: ask_at(name_server, question).code == 0, f"a route of {topic} at {name_server}"
    )


def send(server: apache.Server, messages: int, *more: str) -> None:
    """Send this many messages, by mqload with these options."""
    command = [
        str(build_mqload()),
        "-m",
        "send",
        "-p",
        str(server.port),
        "-c",
        "1",
        "-w",
        "64",
        "-N",
        str(messages),
        *more,
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=600)


def fill(server: apache.Server, messages: int) -> None:
    """Send messages to pull, such that no queue ends at a pull boundary: no pull of a round returns
    empty.
    """
    send(server, messages, "-T", PULL_TOPIC, "-q", str(QUEUES))
    with Desk(server) as desk:
        for queue, end in enumerate(desk.ends(PULL_TOPIC)):
            if end % PULL_COUNT == 0:
                desk.send_one_more(queue)


def _send_fields(queue: int) -> dict[str, str]:
    fields = {
        "a": "filler",
        "b": PULL_TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(queue),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
    }
    return {**fields, "i": "UNIQ_KEY\x017F0000010001251A69D73B1F00000000\x02"}
