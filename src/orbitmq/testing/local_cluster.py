"""`with LocalCluster() as mq:` is a real name server and real brokers for the duration of a test,
with faults on demand.

They run on an event loop in a dedicated thread, so that blocking tests and async ones can use them;
every method here blocks until it is done. When the `with` block ends, for whatever reason, thread,
ports, processes and files are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from orbitmq.common.clock import Clock, SystemClock
from orbitmq.common.errors import ConfigurationError, RequestRefusedError
from orbitmq.common.topic_names import AUTO_CREATE_TOPIC
from orbitmq.embedded.cluster import BROKERS_MAX, ClusterSettings, EmbeddedCluster, broker_names
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.topics import CreateTopicRequestHeader
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.testing.local_brokers import BEHIND_RELAYS, LocalBrokers, Relays
from orbitmq.testing.loop_thread import ClusterLoopThread
from orbitmq.testing.manual_clock import ManualClock
from orbitmq.testing.relay import LinkState
from orbitmq.testing.virtual_time import VirtualTimeLoop

QUEUES: Final = 4
_OWN_KEYS: Final = frozenset(
    {"brokerName", "brokerIP1", "listenPort", "namesrvAddr", "storePathRootDir", "bindAddress"}
)
_READ_AND_WRITE: Final = 6
_NOT_STARTED: Final = "the cluster is not running: use it as `with LocalCluster() as mq:`"
T = TypeVar("T")


class LocalCluster:
    """A name server and brokers on free ports of 127.0.0.1, with a temporary store.

    `brokers`: their number or names. `broker`, `name_server_keys`: more configuration keys of the
    brokers and the name server. `topics`: created at the start, with 4 queues or the given number.
    `processes`: run each broker in its own process. `partitions`: put relays between clients and
    brokers, which `partition` cuts. `virtual_clock`: time stands still except for `advance`; a
    ManualClock passed as `clock` sets the start time.
    """

    def __init__(
        self,
        *,
        brokers: int | Sequence[str] = 1,
        broker: Mapping[str, str] | None = None,
        name_server_keys: Mapping[str, str] | None = None,
        topics: Sequence[str] | Mapping[str, int] = (),
        processes: bool = False,
        partitions: bool = False,
        clock: Clock | None = None,
        virtual_clock: bool = False,
        name_server_port: int = 0,
    ) -> None:
        keys = dict(broker or {})
        if own := _OWN_KEYS & keys.keys():
            raise ConfigurationError(
                f"{', '.join(sorted(own))}: LocalCluster sets this itself: leave it out"
            )
        if processes and (clock is not None or virtual_clock):
            raise ConfigurationError(
                "a broker in its own process uses the machine's clock: leave out processes=True, or"
                " the clock"
            )
        if keys.get("enableShutdownGracefully") == "true" and (
            isinstance(clock, ManualClock) or virtual_clock
        ):
            raise ConfigurationError(
                "enableShutdownGracefully: a stop would wait for a clock that stands still: leave"
                " it out, or the clock"
            )
        if isinstance(topics, str):
            raise ConfigurationError(
                f"topics={topics!r}: give a list of names, or a dict of names to queue counts"
            )
        self.brokers = _names(brokers)
        self.clock = clock or (
            ManualClock(SystemClock().now_ms()) if virtual_clock else SystemClock()
        )
        self._topics = (
            dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, QUEUES)
        )
        behind = (BEHIND_RELAYS,) if partitions else ()
        self._settings = ClusterSettings(
            name_server_port=name_server_port,
            second_hosts=behind,
            brokers=self.brokers,
            broker=keys,
            name_server=dict(name_server_keys or {}),
        )
        self._processes, self._partitions = processes, partitions
        self._thread: ClusterLoopThread | None = None
        self._cluster: EmbeddedCluster | None = None
        self._starting: asyncio.Task[None] | None = None
        self._relays: Mapping[str, Relays] = {}

    # -- lifecycle

    def __enter__(self) -> Self:
        starting = self._begin()
        try:
            starting.result()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            _end(thread, thread.submit(self._stop()))

    async def __aenter__(self) -> Self:
        starting = self._begin()
        try:
            await asyncio.wrap_future(starting)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            stopping = thread.submit(self._stop())
            try:
                await asyncio.shield(asyncio.wrap_future(stopping))
            finally:  # also if cancelled
                _end(thread, stopping)

    # -- addresses

    @property
    def name_server(self) -> str:
        """The name server address for clients: 127.0.0.1:port."""
        return self._started.name_server_address

    def broker_address(self, name: str | None = None) -> str:
        """Return the address at which clients reach a broker, by default the first."""
        return self._started.address(self._chosen(name)[0])

    def store(self, name: str | None = None) -> Path:
        """Return the store folder of a broker, by default the first."""
        return self._started.store_of(self._chosen(name)[0])

    # -- faults and changes; without a name, to all brokers

    def create_topic(self, topic: str, queues: int = QUEUES) -> None:
        """Create a topic with that many queues on each running broker; clients find it at once."""
        self._do(lambda: self._create_topics({topic: queues}))

    def stop_broker(self, name: str | None = None) -> None:
        """Stop a broker cleanly: it unregisters, and everything is flushed."""
        for each in self._chosen(name):
            self._do(partial(self._started.stop_broker, each))

    def kill(self, name: str | None = None) -> None:
        """Crash a broker: its connections break, it does not unregister, and unflushed data is
        lost.

        With `processes` it is a SIGKILL: then the operating system keeps what was written, flushed
        or not.
        """
        for each in self._chosen(name):
            self._do(partial(self._started.kill_broker, each))

    def restart(self, name: str | None = None) -> None:
        """Start a stopped or killed broker on its store and ports; stop a running one first."""
        self.stop_broker(name)
        for each in self._chosen(name):
            self._do(partial(self._started.start_broker, each))

    def partition(
        self, name: str | None = None, *, reset: bool = False
    ) -> AbstractContextManager[object]:
        """Cut clients off from a broker until `heal` or the end of a `with` block; traffic stops
        silently.

        With `reset`, connections are reset and new ones refused. Name server and broker still reach
        each other.
        """
        if not self._partitions:
            raise ConfigurationError(
                "there are no relays between clients and brokers to cut: use"
                " LocalCluster(partitions=True)"
            )
        if self._thread is None:
            raise RuntimeError(_NOT_STARTED)
        self._set_state(name, LinkState.RESET if reset else LinkState.SILENT)
        healing = ExitStack()
        healing.callback(self.heal, name)
        return healing

    def heal(self, name: str | None = None) -> None:
        """End partitions; held traffic is delivered."""
        self._set_state(name, LinkState.FREE)

    def advance(self, seconds: float) -> None:
        """Advance the clock of name server and brokers; everything due by then happens in order."""
        self.advance_ms(round(seconds * 1000))

    def advance_ms(self, elapsed_ms: int) -> None:
        """Advance the clock in milliseconds."""
        loop = self._own_thread.loop
        if not isinstance(loop, VirtualTimeLoop):
            raise ConfigurationError(
                "this cluster runs in real time: use LocalCluster(virtual_clock=True)"
            )
        self._do(partial(loop.advance, elapsed_ms))

    # -- internals

    @property
    def _started(self) -> EmbeddedCluster:
        if self._thread is None or self._cluster is None:
            raise RuntimeError(_NOT_STARTED)
        return self._cluster

    @property
    def _own_thread(self) -> ClusterLoopThread:
        if self._thread is None:
            raise RuntimeError(_NOT_STARTED)
        return self._thread

    def _chosen(self, name: str | None) -> tuple[str, ...]:
        if name is None:
            return self.brokers
        if name not in self.brokers:
            raise ValueError(
                f"there is no broker {name!r}; the brokers are {', '.join(self.brokers)}"
            )
        return (name,)

    def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._own_thread.submit(work()).result()

    def _begin(self) -> Future[None]:
        if self._thread is not None:
            raise RuntimeError("the cluster is already started")
        local = LocalBrokers(self.clock, processes=self._processes, partitions=self._partitions)
        self._relays = local.relays
        self._cluster = EmbeddedCluster(self._settings, self.clock, local.make)
        clock = self.clock
        make_loop = (
            (lambda: VirtualTimeLoop(clock, local.clock_moved))
            if isinstance(clock, ManualClock)
            else asyncio.new_event_loop
        )
        self._thread = ClusterLoopThread("orbitmq-cluster", make_loop)
        return self._thread.submit(self._start(self._cluster))

    async def _start(self, cluster: EmbeddedCluster) -> None:
        self._starting = asyncio.current_task()
        await cluster.start()
        await self._create_topics(self._topics)

    async def _stop(self) -> None:
        cluster = self._cluster
        assert cluster is not None, "the thread exists only with a cluster"
        if self._starting is not None:
            await asyncio.wait([self._starting])
        await cluster.stop()
        self._cluster, self._starting, self._relays = None, None, {}

    async def _create_topics(self, queues: Mapping[str, int]) -> None:
        if not queues:
            return
        requests = [_creation(topic, count) for topic, count in queues.items()]
        async with RemotingClient(ClientConfig(), self.clock) as client:
            for name in self._started.running:
                address = self._started.address(name)
                if self._partitions:  # administration bypasses the relays
                    address = address.replace(self._settings.host, BEHIND_RELAYS)
                for answer in await asyncio.gather(
                    *(client.invoke(address, request) for request in requests)
                ):
                    if answer.code != ResponseCode.SUCCESS:
                        raise RequestRefusedError(
                            answer.code, f"{name} refused to create the topic: {answer.remark}"
                        )

    def _set_state(self, name: str | None, state: LinkState) -> None:
        for each in self._chosen(name):
            if each in self._relays:
                self._do(partial(self._relays[each].set_state, state))


def _end(thread: ClusterLoopThread, stopping: Future[None]) -> None:
    try:
        stopping.result()
    finally:
        thread.close()


def _names(brokers: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(brokers, int):
        if not 1 <= brokers <= BROKERS_MAX:
            raise ConfigurationError(
                f"brokers={brokers}: give a number from 1 to {BROKERS_MAX}, or a list of names"
            )
        return tuple(broker_names(brokers))
    if isinstance(brokers, str) or not brokers or len(set(brokers)) < len(brokers):
        raise ConfigurationError(
            f"brokers={brokers!r}: give their number, or a list of distinct names"
        )
    return tuple(brokers)


def _creation(topic: str, queues: int) -> RemotingCommand:
    header = CreateTopicRequestHeader(
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=_READ_AND_WRITE,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    return RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
