"""A broker with much in its tables, and the largest requests that it accepts; for tests and benchmarks of a loop that nobody holds."""

from __future__ import annotations

import asyncio
from typing import Any

from bad_input_room import SERVED
from client_library_room import until
from orbitmq.broker.processors.clients import GROUPS_PER_CONNECTION_MAX
from orbitmq.common.clock import SystemClock
from orbitmq.message.sql.parser import WORDS_MAX
from orbitmq.protocol import frame
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.client import ClientConfig, RemotingClient
from running_broker_room import RunningBroker, request
from work_room import Work

TOPICS, GROUPS = 10_000, 2_000


def topic(number: int) -> str:
    return f"Topic{number:05d}"


def subscriptions(count: int) -> list[dict[str, Any]]:
    return [{"topic": topic(number % TOPICS), "subString": "*", "subVersion": number} for number in range(count)]


def consumer(group: str, count: int) -> dict[str, Any]:
    kinds = {"consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
    return {"groupName": group, **kinds, "unitMode": False, "subscriptionDataSet": subscriptions(count)}


def heartbeat(client_id: str, consumers: list[dict[str, Any]], producers: int = 0) -> RemotingCommand:
    groups = [{"groupName": f"p{number}"} for number in range(producers)]
    return request(RequestCode.HEART_BEAT, {"clientID": client_id, "consumerDataSet": consumers, "producerDataSet": groups})


def locks(code: int, count: int) -> RemotingCommand:
    queues = [{"topic": "T", "brokerName": "a", "queueId": number} for number in range(count)]
    return request(code, {"consumerGroup": "group0", "clientId": "locker", "mqSet": queues})


SQL = {"topic": topic(1), "subString": " AND ".join(["a = 1"] * (WORDS_MAX // 4 - 1)), "expressionType": "SQL92", "subVersion": 1}

# The largest that is accepted, by what makes it large.
LARGEST: dict[str, RemotingCommand] = {
    "a heartbeat with 10,000 subscriptions": heartbeat("many", [consumer("group0", 10_000)]),
    "a heartbeat with 1,000 groups": heartbeat("groups", [consumer(f"group{number}", 1) for number in range(1_000)]),
    "a heartbeat with 10,000 producer groups": heartbeat("producers", [], GROUPS_PER_CONNECTION_MAX),
    "a heartbeat with 100 of the longest expressions": heartbeat(
        "expressions",
        [
            {
                **consumer("group9", 0),
                "subscriptionDataSet": [
                    {**SQL, "topic": topic(number), "subString": f"{SQL['subString']} OR b = {number}"} for number in range(100)
                ],
            }
        ],
    ),
    "a check of the longest expression": request(RequestCode.CHECK_CLIENT_CONFIG, {"clientId": "c", "group": "g", "subscriptionData": SQL}),
    "locks of 15,000 queues": locks(RequestCode.LOCK_BATCH_MQ, 15_000),
    "unlocks of 15,000 queues": locks(RequestCode.UNLOCK_BATCH_MQ, 15_000),
}


async def fill(broker: RunningBroker) -> None:
    """Make the topics, the groups and their offsets."""
    configs = [{"topicName": topic(number), "readQueueNums": 4, "writeQueueNums": 4, "perm": 6} for number in range(TOPICS)]
    for begin in range(0, TOPICS, 2_000):
        answer = await broker(request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {"topicConfigList": configs[begin : begin + 2_000]}))
        assert answer.code == ResponseCode.SUCCESS, answer
    groups = [{"groupName": f"group{number}"} for number in range(GROUPS)]
    answer = await broker(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {"groupConfigList": groups}))
    assert answer.code == ResponseCode.SUCCESS, answer
    offsets = broker.parts.tables.offsets
    for number in range(GROUPS):
        for other in range(5):
            offsets.commit(f"group{number}", topic(other), 0, 0, client="test")
    offsets.flush()  # as the end of an iteration does, which never has so many


async def ask(broker: RunningBroker, work: Work, wanted: RemotingCommand) -> RemotingCommand:
    """Ask on a connection of its own, and wait until all is done that the answer and the end of that connection began."""
    work.reset()
    async with RemotingClient(ClientConfig(), SystemClock()) as client:
        answer = await RunningBroker(broker.broker, client)(wanted)
        await until(lambda: len(broker.slices) == 0)
    await until(lambda: len(broker.parts.consumers) == 0 and len(broker.parts.producers) == 0)
    await until(lambda: len(broker.slices) == 0)
    return answer


def every_request() -> dict[str, RemotingCommand]:
    """A good request of each code that a broker serves, and the largest ones."""
    return {str(code): RemotingCommand(code, ext_fields=each.good_fields, body=each.good_body) for code, each in SERVED.items()} | LARGEST


async def crowd(broker: RunningBroker, work: Work, count: int) -> dict[str, int]:
    """How much work it is to hold that many pulls, to wake them by one message, and to drop them when their connections end."""
    host, _, port = broker.address.rpartition(":")
    send = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=SERVED[310].good_fields | {"b": "Crowd", "d": "1"}, body=b"x")
    assert (await broker(send)).code == ResponseCode.SUCCESS
    found = {}
    for offset, what in (("1", "wake"), ("2", "drop")):
        fields = SERVED[11].good_fields | {"topic": "Crowd", "queueOffset": offset, "sysFlag": "6", "suspendTimeoutMillis": "600000"}
        pulls = frame.encode(RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=fields)) * (count // 10)
        peers = [await asyncio.open_connection(host, int(port)) for _ in range(10)]
        work.reset()
        for _, writer in peers:
            writer.write(pulls)
        await until(lambda: len(broker.parts.hold) == count)
        found[f"hold {count} pulls"] = work.most
        work.reset()
        if what == "wake":
            await broker(RemotingCommand(send.code, ext_fields=send.ext_fields, body=send.body))
            await until(lambda: len(broker.parts.hold) == 0)
        for _, writer in peers:
            writer.transport.abort()
        await until(lambda: len(broker.parts.hold) == 0 and len(broker.slices) == 0)
        found[f"{what} {count} pulls"] = work.most
    return found
