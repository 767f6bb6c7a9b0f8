"""`with LocalCluster() as mq:` is a real name server and real brokers for as long as a test lasts, and all that may happen to them.

They run on an event loop in a thread of their own, so that blocking tests and those with a loop use them alike; every method here blocks
until it is done. When the `with` block ends, however it ends, thread, ports, processes and files are gone.
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
from orbitmq.common.errors import ConfigurationError, RequestRefused
from orbitmq.common.topic_names import AUTO_CREATE_TOPIC
from orbitmq.embedded.cluster import BROKERS_MAX, ClusterSettings, EmbeddedCluster, broker_names
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.topics import CreateTopicRequestHeader
from orbitmq.remoting.client import ClientConfig, RemotingClient
from orbitmq.testing.local_brokers import BEHIND_RELAYS, LocalBrokers, Relays
from orbitmq.testing.loop_thread import LoopThread
from orbitmq.testing.manual_clock import ManualClock
from orbitmq.testing.relay import Way
from orbitmq.testing.virtual_time import VirtualTimeLoop

QUEUES: Final = 4
_OWN_KEYS: Final = frozenset({"brokerName", "brokerIP1", "listenPort", "namesrvAddr", "storePathRootDir", "bindAddress"})
_READ_AND_WRITE: Final = 6
_NOT_STARTED: Final = "the cluster is not started, or its end was: use it as `with LocalCluster() as mq:`"
T = TypeVar("T")


class LocalCluster:
    """A name server and brokers on free ports of 127.0.0.1, with a temporary store.

    `brokers`: how many, or their names. `broker`, `name_server_keys`: further keys of their configuration, and of the name server's.
    `topics`: there from the start, with 4 queues or as many as is said. `processes`: each broker is a process of its own. `partitions`:
    clients reach brokers by relays, which `partition` cuts. `virtual_clock`: time stands still but for `advance`; a ManualClock given as
    `clock` says when it begins.
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
            raise ConfigurationError(f"{', '.join(sorted(own))}: LocalCluster sets that itself; leave it out")
        if processes and (clock is not None or virtual_clock):
            raise ConfigurationError("a broker in a process of its own has the machine's clock: leave out processes=True, or the clock")
        if keys.get("enableShutdownGracefully") == "true" and (isinstance(clock, ManualClock) or virtual_clock):
            raise ConfigurationError("enableShutdownGracefully: a stop would wait for time that stands still; leave it out, or the clock")
        if isinstance(topics, str):
            raise ConfigurationError(f"topics={topics!r}: give a list of names, or names with their numbers of queues")
        self.brokers = _names(brokers)
        self.clock = clock or (ManualClock(SystemClock().now_ms()) if virtual_clock else SystemClock())
        self._topics = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, QUEUES)
        behind = (BEHIND_RELAYS,) if partitions else ()
        self._settings = ClusterSettings(
            name_server_port=name_server_port,
            second_hosts=behind,
            brokers=self.brokers,
            broker=keys,
            name_server=dict(name_server_keys or {}),
        )
        self._processes, self._partitions = processes, partitions
        self._thread: LoopThread | None = None
        self._cluster: EmbeddedCluster | None = None
        self._starting: asyncio.Task[None] | None = None
        self._relays: Mapping[str, Relays] = {}

    # -- life

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
            finally:  # also when nobody wants to wait
                _end(thread, stopping)

    # -- where it is

    @property
    def name_server(self) -> str:
        """What clients are given: 127.0.0.1:port."""
        return self._started.name_server_address

    def broker_address(self, name: str | None = None) -> str:
        """Where clients reach a broker: the first, without a name."""
        return self._started.address(self._chosen(name)[0])

    def store(self, name: str | None = None) -> Path:
        """The folder in which a broker keeps everything: the first, without a name."""
        return self._started.store_of(self._chosen(name)[0])

    # -- what happens to it: to all brokers, without a name

    def create_topic(self, topic: str, queues: int = QUEUES) -> None:
        """Make a topic, with so many queues on each broker that runs; clients find it at once."""
        self._do(lambda: self._create_topics({topic: queues}))

    def stop_broker(self, name: str | None = None) -> None:
        """Stop a broker as an operator does: it leaves the name server, and everything is on disk."""
        for each in self._chosen(name):
            self._do(partial(self._started.stop_broker, each))

    def kill(self, name: str | None = None) -> None:
        """Let a broker die: its connections break, nobody hears of it, and what was not flushed to disk is lost.

        With `processes` it is a SIGKILL: then the system keeps what was written, flushed or not.
        """
        for each in self._chosen(name):
            self._do(partial(self._started.kill_broker, each))

    def restart(self, name: str | None = None) -> None:
        """Start a broker again on its store and its port, after it was stopped or killed; one that runs is stopped first."""
        self.stop_broker(name)
        for each in self._chosen(name):
            self._do(partial(self._started.start_broker, each))

    def partition(self, name: str | None = None, *, reset: bool = False) -> AbstractContextManager[object]:
        """Cut clients off from a broker, until `heal` or the end of a `with` block: nothing arrives, and nobody is told.

        With `reset` connections are reset, and new ones refused. Name server and broker still hear each other.
        """
        if not self._partitions:
            raise ConfigurationError("nothing stands between clients and brokers that could be cut: use LocalCluster(partitions=True)")
        if self._thread is None:
            raise RuntimeError(_NOT_STARTED)
        self._set_way(name, Way.RESET if reset else Way.SILENT)
        healing = ExitStack()
        healing.callback(self.heal, name)
        return healing

    def heal(self, name: str | None = None) -> None:
        """End partitions; what waited arrives."""
        self._set_way(name, Way.FREE)

    def advance(self, seconds: float) -> None:
        """Let so much time pass for name server and brokers: what is due by then happens, in its order."""
        self.advance_ms(round(seconds * 1000))

    def advance_ms(self, elapsed_ms: int) -> None:
        """The same in milliseconds."""
        loop = self._own_thread.loop
        if not isinstance(loop, VirtualTimeLoop):
            raise ConfigurationError("this cluster lives in real time: use LocalCluster(virtual_clock=True)")
        self._do(partial(loop.advance, elapsed_ms))

    # -- behind it

    @property
    def _started(self) -> EmbeddedCluster:
        if self._thread is None or self._cluster is None:
            raise RuntimeError(_NOT_STARTED)
        return self._cluster

    @property
    def _own_thread(self) -> LoopThread:
        if self._thread is None:
            raise RuntimeError(_NOT_STARTED)
        return self._thread

    def _chosen(self, name: str | None) -> tuple[str, ...]:
        if name is None:
            return self.brokers
        if name not in self.brokers:
            raise ValueError(f"there is no broker {name!r} here, but {', '.join(self.brokers)}")
        return (name,)

    def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._own_thread.submit(work()).result()

    def _begin(self) -> Future[None]:
        if self._thread is not None:
            raise RuntimeError("the cluster is started already")
        local = LocalBrokers(self.clock, processes=self._processes, partitions=self._partitions)
        self._relays = local.relays
        self._cluster = EmbeddedCluster(self._settings, self.clock, local.make)
        clock = self.clock
        make_loop = (lambda: VirtualTimeLoop(clock, local.clock_moved)) if isinstance(clock, ManualClock) else asyncio.new_event_loop
        self._thread = LoopThread("orbitmq-cluster", make_loop)
        return self._thread.submit(self._start(self._cluster))

    async def _start(self, cluster: EmbeddedCluster) -> None:
        self._starting = asyncio.current_task()
        await cluster.start()
        await self._create_topics(self._topics)

    async def _stop(self) -> None:
        cluster = self._cluster
        assert cluster is not None, "the thread comes with it"
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
                if self._partitions:  # administration has a way of its own
                    address = address.replace(self._settings.host, BEHIND_RELAYS)
                for answer in await asyncio.gather(*(client.invoke(address, request) for request in requests)):
                    if answer.code != ResponseCode.SUCCESS:
                        raise RequestRefused(answer.code, f"{name} does not make the topic: {answer.remark}")

    def _set_way(self, name: str | None, way: Way) -> None:
        for each in self._chosen(name):
            if each in self._relays:
                self._do(partial(self._relays[each].set_way, way))


def _end(thread: LoopThread, stopping: Future[None]) -> None:
    try:
        stopping.result()
    finally:
        thread.close()


def _names(brokers: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(brokers, int):
        if not 1 <= brokers <= BROKERS_MAX:
            raise ConfigurationError(f"brokers={brokers}: there may be 1 to {BROKERS_MAX}, or as many as names are given")
        return tuple(broker_names(brokers))
    if isinstance(brokers, str) or not brokers or len(set(brokers)) < len(brokers):
        raise ConfigurationError(f"brokers={brokers!r}: give their number, or a list of names that differ")
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
