"""A broker without sockets that sends back, delays and replies: what unit tests and state machines of retries share."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from broker_room import BrokerRoom
from log_room import HOST
from orbitmq.broker.delay.level_delivery import LevelDelivery
from orbitmq.broker.delay.level_progress import LevelProgress
from orbitmq.broker.delay.levels import Levels
from orbitmq.broker.delay.placing import DelayPlacer
from orbitmq.broker.figures import Figures
from orbitmq.broker.guards.dedup import DedupWindow
from orbitmq.broker.offset_journal import OffsetJournal
from orbitmq.broker.own_messages import OwnMessages
from orbitmq.broker.plugins.interfaces import SentBack
from orbitmq.broker.processors.safe_answers import SafeAnswers
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.send_back import SendBackProcessor
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.store_settings import delay_levels_ms
from orbitmq.message.properties import write
from orbitmq.message.record import decode_all
from orbitmq.message.record_write import Message
from orbitmq.message.stored_message import StoredMessage
from orbitmq.protocol.codes import RequestCode
from orbitmq.store.log_batch import Appended
from orbitmq.store.types import QueueKey, QueueOffset
from orbitmq.testing.forgetful_disk import ForgetfulDisk
from process_files import ProcessFiles
from store_room import opened_store

BACK = RequestCode.CONSUMER_SEND_MSG_BACK
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class DelaySettings:
    """What the placer looks at."""

    broker_name = "broker-a"
    timer_wheel_enable = True
    timer_precision_ms = 1000
    timer_max_delay_sec = 259_200
    timer_stop_enqueue = False

    def __init__(self, levels: str) -> None:
        self.message_delay_level = levels


class RetriesRoom(BrokerRoom):
    """One topic `T`, one group `g`, the processors of sends and of what is sent back, and who delivers what waits."""

    def __init__(self, folder: Path, *, levels: str = LEVELS, dedup: tuple[int, int] | None = None, **settings: Any) -> None:
        settings["delay_levels_ms"] = delay_levels_ms(levels)
        super().__init__(folder, **settings)
        self._root, self._store_settings = folder / "store", settings
        self._delay_settings, self._dedup = DelaySettings(levels), dedup
        self.told: list[SentBack] = []
        self._serve()

    def _serve(self) -> None:
        now_ms = self.clock.now_ms
        self.locks = QueueLocks()
        self.figures = Figures(self.clock, "DefaultCluster", self.topics.is_system)
        self.own = OwnMessages(self.store, self.store, self.figures)
        self.answers = SafeAnswers(self.store, self.topics, self.figures)
        self.delay = DelayPlacer(self._delay_settings, now_ms)
        self.sends = SendProcessor(
            *(self.settings, self.topics, self.groups, self.store, HOST, now_ms, lambda: "NEW-KEY", self.figures, Random(1), lambda: None)
        )
        self.sends.is_in_order = lambda group: self.locks.is_locked(group, self.clock.monotonic_ms())
        self.sends.placers = (self.delay,)
        if self._dedup is not None:
            self.sends.window = DedupWindow(*self._dedup)
            self.sends.window.learn(self.store.log, now_ms(), self.delay.handle_of)
        self.back = SendBackProcessor(
            self.settings,
            topics=self.topics,
            groups=self.groups,
            own=self.own,
            answers=self.answers,
            record_at=self.store.reads.record_at,
            delay=self.delay,
            listener=self.figures,
            random=Random(1),
            busy=lambda: None,
            told=self.told.append,
        )
        journal = OffsetJournal(self.config_folder / "delayOffset.journal", ProcessFiles())
        store = self.store
        progress = LevelProgress(self._file("delayOffset.json"), journal, self.clock, lambda: store.log.flushed_offset, version_step=200)
        levels = Levels(delay_levels_ms(self._delay_settings.message_delay_level))
        self.delivery = LevelDelivery(levels, progress, store.queues, store.reads, self.own, self.figures)
        self.delivery.load(store.log.end_offset)

    def deliver(self) -> None:
        """Let everything come that is due."""
        now_ms = self.clock.now_ms()
        while (next_ms := self.delivery.run(now_ms).next_ms) is not None and next_ms <= now_ms:
            pass

    def die(self, disk: ForgetfulDisk | None = None) -> None:
        """End as a process that is killed, along with the power if the disk forgets, and come back."""
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
        message = Message(b"T", b"again", born_host=HOST, born_time_ms=1, reconsume_times=reconsume_times)
        return self.store.put(message)

    def stored(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        """All messages of a queue."""
        return list(decode_all(self.store.reads.get(QueueKey(topic, queue_id), QueueOffset(0), count_max=1000).records))


def back_fields(offset: int, **changes: Any) -> dict[str, Any]:
    """The header of what a consumer of group `g` sends back."""
    fields: dict[str, Any] = {"offset": offset, "group": "g", "delayLevel": 0, "originMsgId": "id", "originTopic": "T", "unitMode": "false"}
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}


def retry_fields(names: dict[str, str], **changes: Any) -> dict[str, Any]:
    """The header of a message that a consumer sends to the retry topic of group `g` by itself."""
    fields: dict[str, Any] = {
        "producerGroup": "CLIENT_INNER_PRODUCER", "topic": "%RETRY%g", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 123, "flag": 5, "properties": write(names), "reconsumeTimes": 1,
    }  # fmt: skip
    return {name: value for name, value in {**fields, **changes}.items() if value is not None}
