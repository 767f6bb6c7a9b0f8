"""What a store answers when it is asked for everything that it should hold: ours by its own calls,
a real broker by requests.

Questions come from the records of the log. Answers are plain values by a question in words, a
message as all fields of its record, so that two sets of answers are compared field by field.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interop import stores
from interop.frames import Answer, Connection, Request
from orbitmq.message.flags import TransactionType, transaction_type
from orbitmq.message.properties import KEYS, TAGS, UNIQUE_KEY
from orbitmq.message.record import decode_all
from orbitmq.message.stored_message import StoredMessage
from orbitmq.store.consume_queue import Boundary
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reads import GetStatus
from orbitmq.store.types import LogOffset, QueueKey, QueueOffset, StoreTimeMs
from support.common.waiting import wait_until

Answers = dict[str, Any]  # each question begins with its kind
BY_INDEX = frozenset({"key", "tag"})
# 4.9 does not index tags, and by time it has another rule: of several messages with a time any will
# do, between two the nearer, and which
# file it searches follows from when that was written. So both releases are also asked, in queues of
# one file, whether the message that they
# find by a time has that time.
NOT_BY_4_9 = frozenset({"tag", "lower", "upper"})
_FOREVER_MS = (1 << 63) - 1
_TIMES_MAX = 60  # of each queue
_OWN_TIMES_MAX = 20  # of each queue
_ASKED_AT_ONCE = 50
_SETTLED_WITHIN_S = 30.0


@dataclass(frozen=True)
class Questions:
    """What to ask for."""

    queues: tuple[QueueKey, ...]
    log_offsets: tuple[int, ...]
    keys: tuple[tuple[str, str], ...]
    tags: tuple[tuple[str, str], ...]
    times: tuple[tuple[QueueKey, int], ...]
    own_times: tuple[tuple[QueueKey, int], ...]  # times that messages have

    @classmethod
    def about(cls, records: Sequence[StoredMessage]) -> Questions:
        """Every queue, every record, every key, and times around those of the records; of the queue
        that grows, only the records.
        """
        queues: dict[QueueKey, list[StoredMessage]] = defaultdict(list)
        keys: dict[tuple[str, str], None] = {}
        tags: dict[tuple[str, str], None] = {}
        for record in (record for record in records if record.topic != stores.DELAYED_TOPIC):
            if transaction_type(record.sys_flag) in (TransactionType.NONE, TransactionType.COMMIT):
                queues[QueueKey(record.topic, record.queue_id)].append(record)
            named = record.properties()
            for key in (named.get(UNIQUE_KEY, ""), *named.get(KEYS, "").split(" ")):
                keys[record.topic, key] = None
            tags[record.topic, named.get(TAGS, "")] = None
        return cls(
            tuple(queues),
            tuple(record.log_offset for record in records),
            tuple((topic, key) for topic, key in keys if key),
            tuple((topic, tag) for topic, tag in tags if tag),
            tuple(
                (queue, time_ms) for queue, stored in queues.items() for time_ms in _times(stored)
            ),
            tuple(
                (queue, record.store_time_ms)
                for queue, stored in queues.items()
                if len(stored) <= stores.QUEUE_FILE_MESSAGES and queue.topic != stores.BATCH_TOPIC
                for record in stored[:: len(stored) // _OWN_TIMES_MAX + 1]
            ),
        )


def _times(stored: Sequence[StoredMessage]) -> Iterator[int]:
    """Times to ask a queue for: those of its messages and the ones next to them, not too many, and
    far ones.
    """
    own = sorted({record.store_time_ms for record in stored})
    near = sorted({time_ms + distance for time_ms in own for distance in (-1, 0, 1)})
    yield from near[:: len(near) // _TIMES_MAX + 1]
    yield from (0, own[0] - 10_000, own[-1] + 10_000)


def records_of(store: MessageStore) -> list[StoredMessage]:
    """All records of our log, the oldest first."""
    return [record.message() for record in store.log.scan(store.log.min_offset)]


def by_us(store: MessageStore, questions: Questions) -> Answers:
    """What our store answers."""
    answers: Answers = {}
    for queue in questions.queues:
        name, offset = f"{queue.topic}/{queue.queue_id}", QueueOffset(0)
        while (found := store.reads.get(queue, offset, count_max=32)).status is GetStatus.FOUND:
            for message in decode_all(found.records):
                answers[f"message {message.queue_offset} of {name}"] = message
            offset = found.next_offset
        answers[f"offsets of {name}"] = (found.min_offset, found.max_offset)
    for log_offset in questions.log_offsets:
        answers[f"message at {log_offset}"] = store.reads.message_at(LogOffset(log_offset))
    for topic, key in questions.keys:
        answers[f"key {key} of {topic}"] = store.reads.query(topic, key)
    for topic, tag in questions.tags:
        answers[f"tag {tag} of {topic}"] = store.reads.query(topic, tag, by_tags=True)
    for queue, time_ms in questions.times:
        for boundary in Boundary:
            name = f"{boundary.value} offset at {time_ms} of {queue.topic}/{queue.queue_id}"
            answers[name] = store.reads.offset_by_time(queue, StoreTimeMs(time_ms), boundary)
    for queue, time_ms in questions.own_times:
        found_at = store.reads.offset_by_time(queue, StoreTimeMs(time_ms))
        answers[f"time found for {time_ms} in {queue.topic}/{queue.queue_id}"] = (
            store.reads.store_time_of(queue, found_at)
        )
    return answers


def by_broker(address: str, questions: Questions, *, is_5: bool) -> Answers:
    """What a real broker answers."""
    answers: Answers = {}
    with Connection(address, timeout_s=30) as broker:
        for queue in questions.queues:
            _pull_all(broker, queue, answers)
        views = [Request(33, {"offset": f"{log_offset}"}) for log_offset in questions.log_offsets]
        for log_offset, viewed in zip(questions.log_offsets, _ask_all(broker, views), strict=True):
            answers[f"message at {log_offset}"] = next(iter(_records(viewed)), None)
        queries = [_query(topic, key) for topic, key in questions.keys]
        for (topic, key), queried in zip(questions.keys, _ask_all(broker, queries), strict=True):
            answers[f"key {key} of {topic}"] = _records(queried)
        found = _ask_all(broker, [_search(*each, Boundary.LOWER) for each in questions.own_times])
        pulls = [
            _pull(queue, int(searched.fields["offset"]), 1)
            for (queue, _), searched in zip(questions.own_times, found, strict=True)
        ]
        for (queue, time_ms), pulled in zip(
            questions.own_times, _ask_all(broker, pulls), strict=True
        ):
            found_time = next((message.store_time_ms for message in _records(pulled)), None)
            answers[f"time found for {time_ms} in {queue.topic}/{queue.queue_id}"] = found_time
        if not is_5:
            return answers
        for topic, tag in questions.tags:
            answers[f"tag {tag} of {topic}"] = _records(
                broker.ask(_query(topic, tag, indexType="T"))
            )
        times = [(*asked, boundary) for asked in questions.times for boundary in Boundary]
        for (queue, time_ms, boundary), searched in zip(
            times, _ask_all(broker, [_search(*each) for each in times]), strict=True
        ):
            name = f"{boundary.value} offset at {time_ms} of {queue.topic}/{queue.queue_id}"
            answers[name] = int(searched.fields["offset"])
    return answers


def _ask_all(broker: Connection, requests: Sequence[Request]) -> Iterator[Answer]:
    """The answers, in the order of the requests, which are sent without waiting for each."""
    for first in range(0, len(requests), _ASKED_AT_ONCE):
        opaques = [broker.send(request) for request in requests[first : first + _ASKED_AT_ONCE]]
        answers = {answer.opaque: answer for answer in (broker.receive() for _ in opaques)}
        yield from (answers[opaque] for opaque in opaques)


def _query(topic: str, key: str, **more: str) -> Request:
    asked = {
        "topic": topic,
        "key": key,
        "maxNum": "64",
        "beginTimestamp": "0",
        "endTimestamp": f"{_FOREVER_MS}",
    }
    return Request(12, {**asked, **more})


def _search(queue: QueueKey, time_ms: int, boundary: Boundary) -> Request:
    asked = {
        "topic": queue.topic,
        "queueId": f"{queue.queue_id}",
        "timestamp": f"{time_ms}",
        "boundaryType": boundary.value,
    }
    return Request(29, asked)


def _pull(queue: QueueKey, offset: int, count: int = 32) -> Request:
    place = {
        "topic": queue.topic,
        "queueId": f"{queue.queue_id}",
        "queueOffset": f"{offset}",
        "maxMsgNums": f"{count}",
    }
    by_tag = {
        "consumerGroup": "readers",
        "sysFlag": "4",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return Request(11, {**place, **by_tag, "commitOffset": "0", "suspendTimeoutMillis": "0"})


def _pull_all(broker: Connection, queue: QueueKey, answers: Answers) -> None:
    """Add all messages of a queue, and what its offsets are."""
    name, offset = f"{queue.topic}/{queue.queue_id}", 0
    while (pulled := broker.ask(_pull(queue, offset))).code == 0:
        for message in _records(pulled):
            answers[f"message {message.queue_offset} of {name}"] = message
        offset = int(pulled.fields["nextBeginOffset"])
    asked = {"topic": queue.topic, "queueId": f"{queue.queue_id}"}
    low, high = (int(broker.ask(Request(code, asked)).fields["offset"]) for code in (31, 30))
    answers[f"offsets of {name}"] = (low, high)


def _records(answer: Answer) -> list[StoredMessage]:
    return list(decode_all(answer.body)) if answer.code == 0 else []


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Where their answers differ from ours, messages field by field; what only they were asked does
    not count.
    """
    return [
        line
        for question in ours
        for line in _unequal(question, ours[question], theirs.get(question, "no answer"))
    ]


def _unequal(question: str, ours: Any, theirs: Any) -> Iterator[str]:
    if isinstance(ours, StoredMessage) and isinstance(theirs, StoredMessage):
        for name, mine, other in zip(ours._fields, ours, theirs, strict=True):
            if mine != other:
                yield f"{question}: {name}: ours {mine!r:.200}, theirs {other!r:.200}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from _unequal(f"{question} [{number}]", mine, other)
    elif ours != theirs:
        yield f"{question}: ours {ours!r:.200}, theirs {theirs!r:.200}"


def check_same(what: str, ours: Answers, ask: Callable[[], Answers]) -> None:
    """Fail with what differs, if it still does when a broker that has just started has had its
    time.
    """
    theirs: Answers = {}

    def same() -> bool:
        nonlocal theirs
        theirs = ask()
        return not differences(ours, theirs)

    try:
        wait_until(same, what, seconds=_SETTLED_WITHIN_S)
    except AssertionError:
        found = differences(ours, theirs)
        raise AssertionError(
            f"{what}: {len(found)} differences in {len(ours)} answers:\n" + "\n".join(found[:40])
        ) from None
