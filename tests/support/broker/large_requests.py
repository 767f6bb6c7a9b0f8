"""A broker with much in its tables, the largest requests that it accepts, and some that are larger;
for tests and benchmarks of a loop that no request holds.

With access control on, requests come from a user who may do everything by rules, of which he has
many: so each request is read and decided before its handler gets it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from orbitmq import Credentials
from orbitmq.access.credentials import RequestSigner
from orbitmq.broker.consume.membership import GROUPS_PER_CONNECTION_MAX
from orbitmq.broker.processors.admin_replies import QUEUES_MAX
from orbitmq.broker.processors.consumer_offsets import SPANS_MAX
from orbitmq.common.clock import SystemClock
from orbitmq.message import batch
from orbitmq.message.sql.parser import WORDS_MAX
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.groups import GROUP_ITEMS_MAX
from orbitmq.protocol.bodies.nameserver import LIST_ITEMS_MAX
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from support.access.people import BOB, OPERATOR
from support.broker.bad_input import SERVED
from support.broker.running import RunningBroker, request
from support.common.waiting import until
from support.remoting.work_between_yields import Work

TOPICS, GROUPS = 10_000, 2_000
WIDE, SPANS = "Wide", "Spans"  # topics with as many queues as can be, and as a reply can tell times
KEYS: Final = {
    "enablePropertyFilter": "true",
    "maxRequestsInFlight": "100000",
    "useServerSideResetOffset": "true",
    "mappedFileSizeCommitLog": str(64 << 20),
}  # of the broker
_RULES: Final = 200  # of the user


def topic(number: int) -> str:
    return f"Topic{number:05d}"


def subscriptions(count: int) -> list[dict[str, Any]]:
    return [
        {"topic": topic(number % TOPICS), "subString": "*", "subVersion": number}
        for number in range(count)
    ]


def consumer(group: str, count: int) -> dict[str, Any]:
    kinds = {
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    }
    return {
        "groupName": group,
        **kinds,
        "unitMode": False,
        "subscriptionDataSet": subscriptions(count),
    }


def heartbeat(
    client_id: str, consumers: list[dict[str, Any]], producers: int = 0
) -> RemotingCommand:
    groups = [{"groupName": f"p{number}"} for number in range(producers)]
    return request(
        RequestCode.HEART_BEAT,
        {"clientID": client_id, "consumerDataSet": consumers, "producerDataSet": groups},
    )


def locks(code: int, count: int) -> RemotingCommand:
    queues = [{"topic": WIDE, "brokerName": "a", "queueId": number} for number in range(count)]
    return request(code, {"consumerGroup": "group0", "clientId": "locker", "mqSet": queues})


def served(code: int, **fields: str) -> RemotingCommand:
    """A good request of a code, with these fields."""
    return RemotingCommand(code, ext_fields=SERVED[code].good_fields | fields)


def topic_list(count: int) -> RemotingCommand:
    configs = [
        {"topicName": topic(number), "readQueueNums": 4, "writeQueueNums": 4, "perm": 6}
        for number in range(count)
    ]
    return request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": configs})


def group(name: str, steps: int) -> dict[str, Any]:
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000] * steps}}
    return {"groupName": name, "groupRetryPolicy": policy}


def group_list(count: int, steps: int) -> RemotingCommand:
    configs = [group(f"group{number}", steps) for number in range(count)]
    return request(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {"groupConfigList": configs}
    )


def sent_batch(count: int, *, queue_id: int, body: bytes = b"") -> RemotingCommand:
    """A batch; the fast path leaves the choice of a queue, which -1 asks for, to the general
    path.
    """
    item = batch.BatchItem(0, body, b"KEYS\x01k\x02")
    fields = SERVED[320].good_fields | {"b": WIDE, "e": str(queue_id)}
    return RemotingCommand(
        RequestCode.SEND_BATCH_MESSAGE, ext_fields=fields, body=batch.encode([item]) * count
    )


TAGS: Final = [f"{number:x}" for number in range(10_000)]
SQL = {
    "topic": topic(1),
    "subString": " AND ".join(["a = 1"] * (WORDS_MAX // 4 - 1)),
    "expressionType": "SQL92",
    "subVersion": 1,
}

# The largest that is accepted, by what makes it large.
LARGEST: dict[str, RemotingCommand] = {
    "a heartbeat with 10,000 subscriptions": heartbeat("many", [consumer("group0", 10_000)]),
    "a heartbeat with 1,000 groups": heartbeat(
        "groups", [consumer(f"group{number}", 1) for number in range(1_000)]
    ),
    "a heartbeat with 10,000 producer groups": heartbeat(
        "producers", [], GROUPS_PER_CONNECTION_MAX
    ),
    "a heartbeat with 100 of the longest expressions": heartbeat(
        "expressions",
        [
            {
                **consumer("group9", 0),
                "subscriptionDataSet": [
                    {
                        **SQL,
                        "topic": topic(number),
                        "subString": f"{SQL['subString']} OR b = {number}",
                    }
                    for number in range(100)
                ],
            }
        ],
    ),
    "a check of the longest expression": request(
        RequestCode.CHECK_CLIENT_CONFIG, {"clientId": "c", "group": "g", "subscriptionData": SQL}
    ),
    "a check of 10,000 tags": request(
        RequestCode.CHECK_CLIENT_CONFIG,
        {
            "clientId": "c",
            "group": "g",
            "subscriptionData": {
                "topic": topic(1),
                "subString": "*",
                "tagsSet": TAGS,
                "codeSet": list(range(len(TAGS))),
            },
        },
    ),
    "a heartbeat with 18 x 10,000 tags": heartbeat(
        "tags",
        [
            {
                **consumer("group8", 0),
                "subscriptionDataSet": [
                    {"topic": topic(number), "subString": "||".join(TAGS), "subVersion": 1}
                    for number in range(18)
                ],
            }
        ],
    ),
    "locks of 15,000 queues": locks(RequestCode.LOCK_BATCH_MQ, 15_000),
    "unlocks of 15,000 queues": locks(RequestCode.UNLOCK_BATCH_MQ, 15_000),
    "a list of 20,000 topics": topic_list(LIST_ITEMS_MAX),
    "a list of 2,000 groups with 1,000 retry steps": group_list(GROUPS, GROUP_ITEMS_MAX),
    "a group of 16 KiB": request(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group("group1", 2_500)
    ),
    "a batch of 10,000 messages": sent_batch(batch.ITEMS_MAX, queue_id=0),
    "a batch of 4,000 messages on the general path": sent_batch(4_000, queue_id=-1),
    "messages of a key that 10,000 have": served(
        RequestCode.QUERY_MESSAGE, topic=WIDE, key="k", maxNum="64"
    ),
    "an offset by time in a queue with 10,000 messages": served(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, topic=WIDE, queueId="0", timestamp="1"
    ),
    "the ends of 65,536 queues": served(RequestCode.GET_TOPIC_STATS_INFO, topic=WIDE),
    "a reset of 65,536 queues": served(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic=WIDE, group="group0", timestamp="0"
    ),
    "offsets of 65,536 queues": served(
        RequestCode.GET_CONSUME_STATS, consumerGroup="group0", topic=WIDE
    ),
    "a correction of 65,536 queues": served(
        RequestCode.QUERY_CORRECTION_OFFSET,
        topic=WIDE,
        compareGroup="group0",
        filterGroups=",".join(f"g{number}" for number in range(9_000)),
    ),
    "a clone of 65,536 queues": served(
        RequestCode.CLONE_GROUP_OFFSET,
        topic=WIDE,
        srcGroup="group0",
        destGroup="group1",
        offline="true",
    ),
    "times of 16,384 queues": served(
        RequestCode.QUERY_CONSUME_TIME_SPAN, topic=SPANS, group="group0"
    ),
}

# Some that are larger than that, and so are refused.
_MANY: Final = [1] * 1_500_000
REFUSED: dict[str, RemotingCommand] = {
    "a heartbeat of 16 MB": heartbeat("large", [consumer("group0", 150_000)]),
    "locks of 250,000 queues": locks(RequestCode.LOCK_BATCH_MQ, 250_000),
    "a check of 4.5 MB": request(
        RequestCode.CHECK_CLIENT_CONFIG, {"clientId": "c", "group": "g", "x": _MANY}
    ),
    "a group of 4.5 MB": request(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {"groupName": "g", "x": _MANY}
    ),
    "a mode of 4.5 MB": request(
        RequestCode.SET_MESSAGE_REQUEST_MODE, {"topic": "T", "consumerGroup": "g", "x": _MANY}
    ),
    "a list of 100,000 topics": topic_list(100_000),
    "a list with a group of 1,000,000 retry steps": group_list(1, 1_000_000),
    "a batch of 190,000 messages": sent_batch(190_000, queue_id=0),
    "a batch of 190,000 messages on the general path": sent_batch(190_000, queue_id=-1),
    "a batch of 16 MB": sent_batch(15_000, queue_id=0, body=b"x" * 1_000),
    "a configuration of 4 MB": RemotingCommand(
        RequestCode.UPDATE_BROKER_CONFIG, body=b"k=v\n" * 1_000_000
    ),
    "times of 65,536 queues": served(
        RequestCode.QUERY_CONSUME_TIME_SPAN, topic=WIDE, group="group0"
    ),
}


async def fill(broker: RunningBroker) -> None:
    """Make the topics, the groups and their offsets."""
    await _ask_for_success(broker, topic_list(TOPICS))
    await _ask_for_success(broker, group_list(GROUPS, 1))
    for name, queues in ((WIDE, QUEUES_MAX), (SPANS, SPANS_MAX)):
        fields = {"topic": name, "readQueueNums": str(queues), "writeQueueNums": str(queues)}
        await _ask_for_success(broker, served(RequestCode.UPDATE_AND_CREATE_TOPIC, **fields))
    offsets = broker.components.metadata.offsets
    for number in range(GROUPS):
        for other in range(5):
            offsets.commit(f"group{number}", topic(other), 0, 0, client="test")
    offsets.flush()  # as the end of an iteration does, which never has so many


async def _ask_for_success(broker: RunningBroker, wanted: RemotingCommand) -> None:
    answer = await broker(wanted)
    assert answer.code == ResponseCode.SUCCESS, answer


@asynccontextmanager
async def client_of(broker: RunningBroker, who: Credentials | None) -> AsyncIterator[RunningBroker]:
    """A connection of its own, of somebody who signs, or of nobody."""
    hooks = () if who is None else (RequestSigner(who),)
    async with RemotingClient(ClientConfig(), SystemClock(), hooks=hooks) as client:
        yield RunningBroker(broker.broker, client)


async def make_user(broker: RunningBroker) -> Credentials:
    """Let BOB do everything, by rules; OPERATOR makes him."""
    user = {"username": BOB.access_key, "password": BOB.secret_key, "userType": "Normal"}
    named = ["Topic:*", "Group:*", "Cluster:*", *(f"Topic:Other{at}" for at in range(_RULES))]
    entries = [{"resource": each, "actions": ["All"], "decision": "Allow"} for each in named]
    policies = [{"policyType": "CUSTOM", "entries": entries}]
    acl = {"subject": f"User:{BOB.access_key}", "policies": policies}
    for code, body, fields in (
        (RequestCode.AUTH_CREATE_USER, user, {"username": BOB.access_key}),
        (RequestCode.AUTH_CREATE_ACL, acl, {"subject": f"User:{BOB.access_key}"}),
    ):
        async with client_of(broker, OPERATOR) as operator:
            asked = RemotingCommand(code, ext_fields=fields, body=json.dumps(body).encode())
            await _ask_for_success(operator, asked)
    return BOB


async def ask(
    broker: RunningBroker, work: Work, wanted: RemotingCommand, who: Credentials | None = None
) -> RemotingCommand:
    """Ask on a connection of its own, and wait until all is done that the answer and the end of
    that connection began.
    """
    asked = RemotingCommand(wanted.code, ext_fields=dict(wanted.ext_fields or {}), body=wanted.body)
    work.reset()
    async with client_of(broker, who) as client:
        answer = await client(asked)
        await until(lambda: len(broker.slices) == 0)
    await until(
        lambda: len(broker.components.consumers) == 0 and len(broker.components.producers) == 0
    )
    await until(lambda: len(broker.slices) == 0)
    return answer


def every_request() -> dict[str, RemotingCommand]:
    """A good request of each code that a broker serves, the largest ones, and some that are
    larger.
    """
    return (
        {
            str(code): RemotingCommand(code, ext_fields=each.good_fields, body=each.good_body)
            for code, each in SERVED.items()
        }
        | LARGEST
        | REFUSED
    )


async def crowd(broker: RunningBroker, work: Work, count: int) -> dict[str, int]:
    """How much work it is to hold that many pulls, to wake them by one message, and to drop them
    when their connections end.
    """
    host, _, port = broker.address.rpartition(":")
    send = RemotingCommand(
        RequestCode.SEND_MESSAGE_V2,
        ext_fields=SERVED[310].good_fields | {"b": "Crowd", "d": "1"},
        body=b"x",
    )
    assert (await broker(send)).code == ResponseCode.SUCCESS
    found = {}
    for offset, what in (("1", "wake"), ("2", "drop")):
        fields = SERVED[11].good_fields | {
            "topic": "Crowd",
            "queueOffset": offset,
            "sysFlag": "6",
            "suspendTimeoutMillis": "600000",
        }
        pulls = frame.encode(RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields)) * (
            count // 10
        )
        peers = [await asyncio.open_connection(host, int(port)) for _ in range(10)]
        work.reset()
        for _, writer in peers:
            writer.write(pulls)
        await until(lambda: len(broker.components.pulls.pending) == count)
        found[f"hold {count} pulls"] = work.most
        work.reset()
        if what == "wake":
            await broker(RemotingCommand(send.code, ext_fields=send.ext_fields, body=send.body))
            await until(lambda: len(broker.components.pulls.pending) == 0)
        for _, writer in peers:
            writer.transport.abort()
        await until(lambda: len(broker.components.pulls.pending) == 0 and len(broker.slices) == 0)
        found[f"{what} {count} pulls"] = work.most
    return found
