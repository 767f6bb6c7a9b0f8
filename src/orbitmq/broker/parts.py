"""What a broker is made of below its requests: tables, store, the clients that are known, the link to the name servers, figures.

Built and connected here, started and stopped by `Broker`. No logic but what follows from the configuration.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from random import Random

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.consumers import Consumers
from orbitmq.broker.figures import Figures
from orbitmq.broker.long_polling import LongPollingConfig, PullHold
from orbitmq.broker.nameserver_link import NameServerLink
from orbitmq.broker.producers import Producers
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.registration import BrokerIdentity, RegistrationAnswer
from orbitmq.broker.store_settings import store_config
from orbitmq.broker.system_info import RuntimeInfo
from orbitmq.broker.tables import Tables
from orbitmq.common.clock import Clock
from orbitmq.common.errors import ConfigurationError
from orbitmq.message import hosts
from orbitmq.message.message_id import UniqueIds
from orbitmq.remoting.client import RemotingClient
from orbitmq.remoting.settings import client_config
from orbitmq.store.file_layer import FileLayer
from orbitmq.store.message_store import MessageStore


class Parts:
    """See above. `on_store_news` is called on the loop thread when a thread of the store has something to tell."""

    on_store_news: Callable[[], None]

    def __init__(self, config: BrokerConfig, clock: Clock, layer: FileLayer, loop: asyncio.AbstractEventLoop) -> None:
        self.config = config
        self.clock = clock
        self.random = Random()
        self.client = RemotingClient(client_config(config), clock)
        self.tables = Tables(config, clock, layer, loop, lambda names: self.link.topics_changed(names))
        self.identity = BrokerIdentity.of(config, config.listen_port)
        self.link = NameServerLink(config, self.identity, self.tables.topics, self.client, self._registered)
        self.store_host = _store_host(config)
        self.store = MessageStore(
            layer, clock, store_config(config), self.store_host, notify=lambda: loop.call_soon_threadsafe(self.on_store_news)
        )
        self.store.retention.queues.is_system_topic = self.tables.topics.is_system
        self.producers, self.consumers, self.locks = Producers(), Consumers(), QueueLocks()
        self.hold = PullHold(_long_polling(config))
        self.unique_ids = UniqueIds(
            address=self.store_host[:-4], pid=os.getpid(), process_number=self.random.getrandbits(32), now_ms=clock.now_ms
        )
        self.figures = Figures(clock.now_ms(), config.broker_cluster_name, self.tables.topics.is_system)
        self.info = RuntimeInfo(config, self.store, self.figures.store, clock)

    def follow_config(self) -> None:
        """Take over what of the configuration changed."""
        self.tables.follow_config()
        self.hold.config = _long_polling(self.config)
        self.store.retention.config = store_config(self.config)

    def permission_changed(self) -> None:
        """Let every name server hear of it."""
        self.tables.topics.renew()
        self.link.register_all()

    def _registered(self, answer: RegistrationAnswer) -> None:
        """Hear what a name server says of ordered topics."""
        if answer.order_topics:
            self.tables.topics.mark_ordered(answer.order_topics)


def _long_polling(config: BrokerConfig) -> LongPollingConfig:
    return LongPollingConfig(long_polling=config.long_polling_enable, short_polling_ms=config.short_polling_time_mills)


def _store_host(config: BrokerConfig) -> bytes:
    """The address that clients are told, as records hold it; a name is looked up."""
    try:
        found = socket.getaddrinfo(config.broker_ip1, config.listen_port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigurationError(
            f"brokerIP1={config.broker_ip1} is not known here: {error}; name an address that clients can connect to"
        ) from error
    return hosts.pack(str(found[0][4][0]), config.listen_port)
