"""Stores that OrbitMQ and the real brokers hand to each other: their settings for both, and what we
put into them.

Small files, so that a few hundred messages fill several logs, queue files and index files. The
messages are of every kind that a record can hold. A store of ours is written in this process and
closed, or by a child process that is killed while it writes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from interop import registrations
from orbitmq.common.clock import Clock, SystemClock
from orbitmq.message import batch as batches
from orbitmq.message import compression, flags, hosts, properties
from orbitmq.message.flags import CompressionType, TransactionType
from orbitmq.message.record_write import MessageRecord
from orbitmq.store import batch_consume_queue
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import ENTRY_SIZE
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.index_file import IndexShape
from orbitmq.store.log_batch import Appended
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.manual_clock import ManualClock

TESTS = Path(__file__).parents[1]
V4_HOST = hosts.pack("192.0.2.7", 10911)
V6_HOST = hosts.pack("2001:db8::7", 10911)
# brokers deliver to it whatever is due when they start, and once more after a kill
DELAYED_TOPIC = "Later"
TOPICS = {
    "Orders": 4,
    "Letters": 1,
    "Bodies": 2,
    "Batches": 1,
    "Hosts": 2,
    DELAYED_TOPIC: 1,
    "Deals": 1,
    "%RETRY%readers": 1,
}
BATCH_TOPIC = "Inner"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
_TRANSACTION_TOPICS = (
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
)  # 4.9 lets read them only once it has made them

_LOG_FILE_SIZE = 128 << 10
QUEUE_FILE_MESSAGES = 100
_QUEUE_FILE_SIZE = QUEUE_FILE_MESSAGES * ENTRY_SIZE
_BATCH_QUEUE_FILE_SIZE = 3 * batch_consume_queue.ENTRY_SIZE
_INDEX_SHAPE = IndexShape(50, 300)
_NEVER_MS = 36_000_000
BROKER_SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": _LOG_FILE_SIZE,
    "mappedFileSizeConsumeQueue": _QUEUE_FILE_SIZE,
    "mapperFileSizeBatchConsumeQueue": _BATCH_QUEUE_FILE_SIZE,
    "maxHashSlotNum": _INDEX_SHAPE.slots,
    "maxIndexNum": _INDEX_SHAPE.entries,
    "maxMessageSize": 100_000,
    "transactionCheckInterval": (
        _NEVER_MS
    ),  # else the stop of a 5.5.0 broker writes half messages once more
    "transactionTimeOut": _NEVER_MS,
    "timerWheelEnable": "false",
    "brokerFastFailureEnable": "false",  # a busy machine is no reason to refuse
    "osPageCacheBusyTimeOutMills": 60_000,
}


def open_store(root: Path, clock: Clock | None = None, store_host: bytes = V4_HOST) -> MessageStore:
    """Our store in that folder, with the sizes that the brokers are told, not opened yet."""
    config = StoreConfig(
        root=root,
        commit_log_file_size=_LOG_FILE_SIZE,
        queue_file_size=_QUEUE_FILE_SIZE,
        batch_queue_file_size=_BATCH_QUEUE_FILE_SIZE,
        index_shape=_INDEX_SHAPE,
    )
    return MessageStore(OsFileLayer(), clock or SystemClock(), config, store_host)


def write_topics(root: Path) -> None:
    """The file from which a broker knows the topics, as 5.5.0 writes it."""
    counts = {**TOPICS, **dict.fromkeys(_TRANSACTION_TOPICS, 1)}
    table = {
        name: registrations.topic(name, readQueueNums=count, writeQueueNums=count)
        for name, count in counts.items()
    }
    table[BATCH_TOPIC] = registrations.topic(
        BATCH_TOPIC, readQueueNums=1, writeQueueNums=1, attributes={"queue.type": "BatchCQ"}
    )
    version = registrations.data_version(len(table))
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text(
        json.dumps({"dataVersion": version, "topicConfigTable": table}, indent="\t")
    )


def messages(series: str) -> Iterator[list[MessageRecord]]:
    """Messages of every kind; those of one list are a batch. Their keys begin with `series`, so
    that series can follow each other.
    """
    numbers = iter(range(10_000))

    def made(
        topic: str,
        body: bytes,
        queue_id: int = 0,
        *,
        sys_flag: int = 0,
        born_host: bytes = V4_HOST,
        **more: str | None,
    ) -> MessageRecord:
        number = next(numbers)
        names = {
            properties.UNIQUE_KEY: f"{series.encode().hex():0<20.20}{number:012X}".upper(),
            "WAIT": "true",
            "Größe": f"日本語 𝄞 {number}",
        }
        return MessageRecord(
            topic.encode(),
            body,
            born_host=born_host,
            born_time_ms=1_700_000_000_000 + number,
            queue_id=queue_id,
            flag=number,
            sys_flag=sys_flag,
            properties=properties.encode({**names, **more}),
        )

    for i in range(120):
        keys = f"{series}-order-{i} {series}-dozen-{i // 12} {series}-schlüssel-{i}"
        yield [
            made(
                "Orders", f"order {i}".encode(), i % 4, KEYS=keys, TAGS=("red", "grün", None)[i % 3]
            )
        ]
    for i in range(250):
        yield [made("Letters", f"letter {i}".encode(), KEYS=f"{series}-letter-{i}")]
    text = "später ".encode() * 3_000
    yield [made("Bodies", b"", KEYS=f"{series}-empty")]
    yield [made("Bodies", bytes(range(256)), 1, KEYS=f"{series}-every-byte")]
    for kind in CompressionType:
        packed = compression.deflate(text, kind)
        yield [
            made(
                "Bodies",
                packed,
                sys_flag=flags.with_compression(0, kind),
                KEYS=f"{series}-{kind.name}",
            )
        ]
    yield [
        made(
            "Bodies",
            compression.deflate(text, CompressionType.ZLIB),
            sys_flag=flags.COMPRESSED,
            KEYS=f"{series}-old-client",
        )
    ]
    for i in range(5):
        yield [made("Bodies", bytes([65 + i]) * 90_000, 1, KEYS=f"{series}-large-{i}")]
    for i in range(3):
        yield [
            made("Batches", f"item {i} of {j}".encode(), KEYS=f"{series}-item-{i}-{j}", TAGS="item")
            for j in range(7)
        ]
    yield [made("Hosts", b"from v6", born_host=V6_HOST, KEYS=f"{series}-v6")]
    yield [made("Hosts", b"from v4", 1, KEYS=f"{series}-v4")]
    again = made("%RETRY%readers", b"again", RETRY_TOPIC="Orders", KEYS=f"{series}-again")
    again.reconsume_times = 3
    yield [again]
    for level in (
        (1, 18) if series == "first" else (18,)
    ):  # the first is due at once, the second not in these tests
        yield [
            made(
                SCHEDULE_TOPIC,
                f"{series} level {level}".encode(),
                level - 1,
                DELAY=f"{level}",
                REAL_TOPIC=DELAYED_TOPIC,
                REAL_QID="0",
                TAGS="delayed",
            )
        ]
    for outcome in TransactionType:
        deal = made(
            "Deals",
            outcome.name.encode(),
            sys_flag=outcome,
            KEYS=f"{series}-{outcome.name}",
            PGROUP="dealers",
        )
        deal.prepared_offset = 12_345 if outcome is TransactionType.COMMIT else 0
        yield [deal]


def put(store: MessageStore, batch: Sequence[MessageRecord]) -> list[Appended]:
    """Store a message, or several as a batch."""
    places = [store.append(batch[0])] if len(batch) == 1 else store.append_batch(batch)
    store.commit()
    return places


def put_all(store: MessageStore, series: str, clock: ManualClock | None = None) -> list[int]:
    """Store a series, and return the log offsets; a manual clock moves so that some have one time
    and some are seconds apart.
    """
    taken: list[int] = []
    for number, batch in enumerate(messages(series)):
        taken += [place.offset for place in put(store, batch)]
        if clock is not None:
            clock.advance_ms((0, 0, 1, 7, 2_500)[number % 5])
    return taken


def write_closed(root: Path) -> list[int]:
    """A store in two sessions, each closed properly, of a broker with an IPv4 and then an IPv6
    address; the log offsets of its messages.
    """
    clock = ManualClock(SystemClock().now_ms() - 3_600_000)
    taken: list[int] = []
    for series, host in (("first", V4_HOST), ("second", V6_HOST)):
        store = open_store(root, clock, host)
        store.open()
        taken += put_all(store, series, clock)
        store.close()
    return taken


def write_killed(root: Path, acknowledged_min: int, series: str) -> list[int]:
    """Have a store written on by a process that is killed while it writes; the log offsets of all
    messages that it had taken.
    """
    program = (
        "import sys; from interop.stores import write_until_killed; write_until_killed(sys.argv[1],"
        " sys.argv[2])"
    )
    command = [sys.executable, "-c", program, str(root), series]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=TESTS, text=True) as child:
        assert child.stdout is not None
        try:
            taken = [
                int(line) for _, line in zip(range(acknowledged_min), child.stdout, strict=False)
            ]
        finally:
            child.kill()
        assert len(taken) == acknowledged_min, "the child ended before it was killed"
        return taken + [int(line) for line in child.stdout if line.endswith("\n")]


def write_until_killed(root: str, series: str) -> None:
    """Store a series, then letters without end, and print the log offset of each message once it is
    taken.
    """
    store = open_store(Path(root), store_host=V6_HOST)
    store.open()
    for name in (series, *(f"{series}{number}" for number in range(10_000))):
        for batch in messages(name):
            if name == series or batch[0].topic == b"Letters":
                for place in put(store, batch):
                    print(place.offset, flush=True)


def add_inner_batches(root: Path) -> list[int]:
    """Store batches that are one record each, in a queue of their own kind, which 5.x has; the log
    offsets.
    """
    store = open_store(root)
    store.open()
    taken: list[int] = []
    for number in range(5):
        items = [
            batches.BatchItem(item, f"{number}.{item}".encode(), b"") for item in range(number + 1)
        ]
        names = {
            properties.UNIQUE_KEY: f"{number:032X}",
            properties.KEYS: f"inner-{number}",
            properties.TAGS: "inner",
        }
        batch = MessageRecord(
            BATCH_TOPIC.encode(),
            batches.encode(items),
            born_host=V4_HOST,
            born_time_ms=1,
            properties=properties.encode(names),
        )
        batches.make_inner(batch)
        taken += [place.offset for place in put(store, [batch])]
    store.close()
    return taken
