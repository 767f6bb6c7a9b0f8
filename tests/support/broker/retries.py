"""A broker without sockets that sends back, delays and replies: what unit tests and state machines
of retries share.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.config.store_config import delay_levels_ms
from orbitmq.broker.delay.levels.delivery import LevelDelivery
from orbitmq.broker.delay.levels.levels import Levels
from orbitmq.broker.delay.levels.progress import LevelProgress
from orbitmq.broker.delay.rewriter import DelayRewriter
from orbitmq.broker.metadata.offset_journal import OffsetJournal
from orbitmq.broker.plugins.interfaces import SentBack
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.send_back import SendBackProcessor
from orbitmq.broker.produce.deduplication import DedupWindow
from orbitmq.broker.produce.internal_writer import InternalMessageWriter
from orbitmq.broker.produce.send_back import SendBackService
from orbitmq.message.properties import write
from orbitmq.message.record import decode_all
from orbitmq.message.record_write import MessageRecord
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode
from orbitmq.store.log_batch import Appended
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.forgetful_disk import ForgetfulDisk
from support.broker.listeners import stats_recorder
from support.broker.services import ExpectedDelivery, send_service, write_replies
from support.broker.settings import broker_settings
from support.broker.socketless import BrokerRoom
from support.common.process_files import ProcessFiles
from support.store.logs import HOST
from support.store.stores import opened_store

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class RetriesRoom(BrokerRoom):
    """One topic `T`, one group `g`, the processors of sends and of what is sent back, and who
    delivers what waits.
    """

    def __init__(
        self,
        folder: Path,
        *,
        levels: str = LEVELS,
        dedup: tuple[int, int] | None = None,
        **settings: Any,
    ) -> None:
        settings["delay_levels_ms"] = delay_levels_ms(levels)
        super().__init__(folder, **settings)
        self._root, self._store_settings = folder / "store", settings
        self._delay_settings, self._dedup = broker_settings(message_delay_level=levels), dedup
        self.told: list[SentBack] = []
        self._serve()

    def _serve(self) -> None:
        now_ms = self.clock.now_ms
        self.locks = QueueLocks()
        self.figures = stats_recorder(self.clock, self.topics.is_system)
        self.own = InternalMessageWriter(self.store, self.store, self.figures)
        self.write_replies = write_replies(self, self.figures)
        self.delay = DelayRewriter(self._delay_settings, now_ms, ExpectedDelivery())
        window = None
        if self._dedup is not None:
            window = DedupWindow(*self._dedup)
            window.learn(self.store.log, now_ms(), self.delay.handle_of)
        self.service = send_service(
            self,
            self.figures,
            window=window,
            is_in_order=lambda group: self.locks.is_locked(group, self.clock.monotonic_ms()),
            **{"rewriters": (self.delay,)} | self._more_parts(),
        )
        self.sends = SendProcessor(self.service, replies=self.write_replies, hooks=None)
        self.back = SendBackProcessor(
            SendBackService(
                settings=self.settings,
                topics=self.topics,
                groups=self.groups,
                own=self.own,
                record_at=self.store.reads.record_at,
                delay=self.delay,
                listener=self.figures,
                random=Random(1),
                busy=lambda: None,
            ),
            replies=self.write_replies,
            sent_back=self.told.append,
        )
        journal = OffsetJournal(self.config_folder / "delayOffset.journal", ProcessFiles())
        store = self.store
        progress = LevelProgress(
            self._file("delayOffset.json"),
            journal,
            self.clock,
            lambda: store.log.flushed_offset,
            version_step=200,
        )
        levels = Levels(delay_levels_ms(self._delay_settings.message_delay_level))
        self.delivery = LevelDelivery(
            levels, progress, store.queues, store.reads, self.own, self.figures
        )
        self.delivery.load(store.log.end_offset)

    def _more_parts(self) -> dict[str, Any]:
        """Parts of the service of sends that a kind of room has besides."""
        return {}

    def deliver(self) -> None:
        """Let everything come that is due."""
        now_ms = self.clock.now_ms()
        while (next_ms := self.delivery.run(now_ms).next_ms) is not None and next_ms <= now_ms:
            pass

    def die(self, disk: ForgetfulDisk | None = None) -> None:
        """End as a process that is killed, along with the power if the disk forgets, and come
        back.
        """
        self.delivery.abandon()
        self.store.abandon()
        if disk is not None:
            disk.forget()
        self.store = opened_store(self._root, clock=self.clock, **self._store_settings)
        self._serve()

    def close(self) -> None:
        self.delivery.abandon()
        super().close()

    def put_copy(self, reconsume_times: int) -> Appended:
        """A message that came again so many times."""
        message = MessageRecord(
            b"T", b"again", born_host=HOST, born_time_ms=1, reconsume_times=reconsume_times
        )
        return self.store.put(message)

    def stored(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """All messages of a queue."""
        return list(
            decode_all(
                self.store.reads.get(
                    QueueKey(topic, queue_id), QueueOffset(0), count_max=1000
                ).records
            )
        )


def back_fields(offset: int, **changes: Any) -> dict[str, Any]:
    """The header of what a consumer of group `g` sends back."""
    fields: dict[str, Any] = {
        "offset": offset,
        "group": "g",
        "delayLevel": 0,
        "originMsgId": "id",
        "originTopic": "T",
        "unitMode": "false",
    }
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}


def retry_fields(names: dict[str, str], **changes: Any) -> dict[str, Any]:
    """The header of a message that a consumer sends to the retry topic of group `g` by itself."""
    fields: dict[str, Any] = {
        "producerGroup": "CLIENT_INNER_PRODUCER", "topic": "%RETRY%g", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 123, "flag": 5, "properties": write(names), "reconsumeTimes": 1,
    }  # fmt: skip
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}
