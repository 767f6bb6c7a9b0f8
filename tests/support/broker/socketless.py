"""A broker without sockets or threads: real topics, groups, offsets, clients and store in a folder,
and peers whose bytes are looked at.

Nothing happens by itself: files are saved when `loop` runs, and time passes when `clock` is told
so.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, cast

from orbitmq.broker.clients.consumers import Consumers
from orbitmq.broker.clients.producers import Producers
from orbitmq.broker.clients.registry import ClientInfo
from orbitmq.broker.consume.filters.bit_maps import BitMaps
from orbitmq.broker.consume.filters.resolver import FilterResolver
from orbitmq.broker.metadata.bloom import Bloom
from orbitmq.broker.metadata.consumer_filters import ConsumerFilters
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.groups import GroupRules, Groups
from orbitmq.broker.metadata.offset_journal import OffsetJournal
from orbitmq.broker.metadata.persistent_file import ConfigFile
from orbitmq.broker.metadata.topics import TopicRules, Topics
from orbitmq.common.errors import RefusedError, RequestRefusedError
from orbitmq.message import properties
from orbitmq.message.record_write import MessageRecord
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.clients import ConsumerData
from orbitmq.protocol.bodies.nameserver import TopicConfig
from orbitmq.protocol.bodies.subscriptions import MessageModel, SubscriptionData
from orbitmq.protocol.codes import REFUSAL_CODES, LanguageCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.remoting.lanes import WaitingHandler
from orbitmq.store.log_batch import Appended
from orbitmq.testing.manual_clock import ManualClock
from support.broker.manual_worker import InlineWorker, ManualLoop
from support.broker.settings import BROKER as BROKER
from support.broker.settings import broker_settings
from support.common.process_files import ProcessFiles
from support.remoting.channels import Peers, answered_now, sent
from support.store.logs import HOST
from support.store.stores import opened_store

ADDRESS = "127.0.0.1:10911"


class Processor(Protocol):
    """Whoever serves requests."""

    def handlers(self) -> Mapping[int, Handler]: ...


class BrokerRoom:
    """The tables of one broker, with one topic `T` of four queues and one group `g`."""

    def __init__(self, folder: Path, **store_settings: Any) -> None:
        self.config_folder = folder / "config"
        self.settings = broker_settings()
        self.clock = ManualClock()
        self.loop, self.worker = ManualLoop(), InlineWorker()
        self.peers = Peers(self.clock)
        self.channel = self.peers.connect()
        self.topics_file, self.groups_file = (
            self._file("topics.json"),
            self._file("subscriptionGroup.json"),
        )
        self.registered: list[str] = []  # topics that name servers were to hear of
        self.topics = Topics(
            TopicRules(broker_name=BROKER), self.topics_file, self.clock, self.registered.extend
        )
        self.groups = Groups(GroupRules(), self.groups_file, self.clock)
        self.config_folder.mkdir(parents=True)
        journal = OffsetJournal(self.config_folder / "consumerOffset.journal", ProcessFiles())
        self.offsets = Offsets(self._file("consumerOffset.json"), journal, self.clock)
        self.known_filters = ConsumerFilters(
            Bloom.of(20, 32), self._file("consumerFilter.json"), self.clock, 86_400_000
        )
        self.filters = FilterResolver(self.settings, self.known_filters)
        for table in (self.topics, self.groups, self.offsets, self.known_filters):
            table.load()
        self.producers, self.consumers = Producers(), Consumers()
        self.store = opened_store(
            folder / "store",
            clock=self.clock,
            filter_bits=BitMaps(self.settings, self.known_filters).of,
            **store_settings,
        )
        self.topics.update(TopicConfig("T", 4, 4))
        self.groups.find("g")
        self.loop.run()

    def close(self) -> None:
        self.store.close()
        self.offsets.close()

    def _file(self, name: str) -> ConfigFile:
        return ConfigFile(self.config_folder / name, self.worker, self.loop)

    # -- messages and consumers

    def put(
        self, body: bytes = b"hello", topic: str = "T", queue_id: int = 0, **names: str
    ) -> Appended:
        """Store a message with these properties; each a millisecond after the one before."""
        self.clock.advance_ms(1)
        content = properties.write(names).encode()
        return self.store.put(
            MessageRecord(
                topic.encode(),
                body,
                born_host=HOST,
                born_time_ms=1,
                queue_id=queue_id,
                properties=content,
            )
        )

    def consume(
        self, group: str = "g", *topics: str, client_id: str = "c", version: int = 513
    ) -> Channel:
        """A consumer that is online and subscribes these topics, `T` when none is named."""
        channel = self.peers.connect()
        subscriptions = tuple(SubscriptionData(topic, "*", 1) for topic in topics or ("T",))
        data = ConsumerData(
            group, message_model=MessageModel.CLUSTERING, subscriptions=subscriptions
        )
        self.consumers.register(
            channel,
            ClientInfo(client_id, LanguageCode.JAVA, version),
            data,
            self.clock.monotonic_ms(),
        )
        return channel

    # -- requests

    def ask(
        self,
        processor: Processor,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes | Any = None,
    ) -> RemotingCommand:
        """What is answered to a request, at once or when files were saved."""
        answer = self.begin(processor, code, fields, body)
        if answer is None:
            self.loop.run()
            (answer,) = sent(self.channel)
        return answer

    def begin(
        self,
        processor: Processor,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes | Any = None,
        **members: Any,
    ) -> RemotingCommand | None:
        """What is answered within the turn; nothing when the answer comes later."""
        handler = processor.handlers()[code]
        assert not inspect.iscoroutinefunction(handler), "it needs a lane: use ask_waiting"
        return answered_now(handler, self.channel, _request(code, fields, body, **members))

    async def ask_waiting(
        self, processor: Processor, code: int, fields: dict[str, Any] | None = None
    ) -> RemotingCommand:
        """What is answered to a request that may have to wait for others."""
        answer = await cast("WaitingHandler", processor.handlers()[code])(
            self.channel, _request(code, fields, None)
        )
        assert answer is not None
        return answer

    def refusal(
        self,
        processor: Processor,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes | Any = None,
    ) -> RequestRefusedError:
        """Why a request is refused, after a look that it changed nothing."""
        before = self.state()
        with refusals() as refused:
            self.begin(processor, code, fields, body)
        assert sent(self.channel) == []
        assert self.state() == before, "a request that is refused changes nothing"
        return refused[0]

    def state(self) -> tuple[bytes, ...]:
        """All that requests of operators may change, as the files would have it."""
        return self.topics.encode(), self.groups.encode(), self.offsets.encode()


@contextmanager
def refusals() -> Iterator[list[RequestRefusedError]]:
    """Takes a refusal of a processor or of a service, as the wire would have it."""
    found: list[RequestRefusedError] = []
    try:
        yield found
    except RefusedError as refused:
        found.append(RequestRefusedError(REFUSAL_CODES[refused.refusal], refused.remark))
    except RequestRefusedError as refused:
        found.append(refused)
    assert found, "it was not refused"


def _request(
    code: int, fields: dict[str, Any] | None, body: bytes | Any, **members: Any
) -> RemotingCommand:
    texts = None if fields is None else {name: str(value) for name, value in fields.items()}
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    return RemotingCommand(code, ext_fields=texts, body=content, opaque=7, **members)


def body_of(answer: RemotingCommand) -> Any:
    """The JSON of an answer that succeeded; queues that are keys as `topic:queue id`."""
    assert (answer.code, answer.remark or "") in ((0, ""), (0, "not set any response code")), answer
    assert answer.body is not None
    return _plain(fastjson.loads(answer.body))


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {
        f"{key['topic']}:{key['queueId']}" if isinstance(key, Mapping) else key: _plain(item)
        for key, item in value.items()
    }
