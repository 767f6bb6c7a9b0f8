"""What the crash campaigns write: numbered messages that follow from their number alone, into files
so small that everything rolls.

Most go to plain queues, every eleventh is an inner batch of one to three. Whoever finds a message
can tell from its body which one it should be, and so whether anybody ever sent it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from orbitmq.message import hosts, properties
from orbitmq.message.flags import INNER_BATCH, NEED_UNWRAP
from orbitmq.message.record_write import MessageRecord
from orbitmq.store.config import StoreConfig
from orbitmq.store.index_file import IndexShape
from orbitmq.store.types import QueueKey

HOST = hosts.pack("192.0.2.1", 10911)
QUEUES = (QueueKey("orders", 0), QueueKey("orders", 1), QueueKey("audit", 0))
BATCHES = QueueKey("batches", 0)
BORN_MS = 1_700_000_000_000


def small(root: Path, **changes: Any) -> StoreConfig:
    """A store whose log rolls every fifty messages or so, its queues every twenty, its index every
    thirty.
    """
    config = StoreConfig(
        root=root,
        commit_log_file_size=16 * 1024,
        queue_file_size=20 * 20,
        batch_queue_file_size=46 * 4,
        index_shape=IndexShape(slots=31, entries=90),
    )
    return replace(config, **changes)


def queue_of(number: int) -> QueueKey:
    """Which queue that message goes to."""
    return BATCHES if number % 11 == 10 else QUEUES[number % 7 % len(QUEUES)]


def body_of(number: int) -> bytes:
    """The body of that message: its number, and more bytes that only it has."""
    return b"%08d " % number + Random(number).randbytes(number * 37 % 400)


def number_of(body: bytes) -> int | None:
    """Which message has that body; None when none has."""
    digits = body[:8]
    if not digits.isdigit() or len(digits) < 8 or body_of(int(digits)) != body:
        return None
    return int(digits)


def places_of(number: int) -> int:
    """How many offsets of its queue that message takes."""
    return 1 + number % 3 if queue_of(number) == BATCHES else 1


def properties_of(number: int) -> bytes:
    """The properties of that message: a key of its own, one that it shares with every seventh, and
    tags.
    """
    names = {
        properties.KEYS: f"own{number} of{number % 7}",
        properties.TAGS: f"tag{number % 3}",
        properties.UNIQUE_KEY: f"{number:08d}",
    }
    return properties.encode(
        names
        | ({properties.INNER_NUM: str(places_of(number))} if queue_of(number) == BATCHES else {})
    )


def has_properties(number: int, found: bytes) -> bool:
    """Whether these are the properties of that message, with what the store adds to those of an
    inner batch behind them.
    """
    return found.startswith(properties_of(number))


def message(number: int) -> MessageRecord:
    """The message of that number."""
    queue = queue_of(number)
    return MessageRecord(
        queue.topic.encode(),
        body_of(number),
        born_host=HOST,
        born_time_ms=BORN_MS + number,
        queue_id=queue.queue_id,
        sys_flag=INNER_BATCH | NEED_UNWRAP if queue == BATCHES else 0,
        properties=properties_of(number),
    )
