"""A master and its slaves on real sockets: what is copied, acknowledged, refused and continued."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from orbitmq.broker.periodic_tasks import StoreTicks
from orbitmq.common.clock import SystemClock
from orbitmq.common.config.tls import TlsMode
from orbitmq.message import hosts
from orbitmq.remoting.tls import ClientTls, ServerContext, ServerTls, client_context
from orbitmq.replication.classic_frames import encode_report
from orbitmq.replication.feed import ReplicaFeed
from orbitmq.replication.follower import LogFollower
from orbitmq.replication.master_link import MasterLink
from orbitmq.replication.quorum import Quorum
from orbitmq.replication.replica_server import ReplicaServer
from orbitmq.replication.sender import SenderLimits
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.flush.group_commit import Outcome
from orbitmq.store.flush.replica_acks import NO_REPLICAS
from orbitmq.store.message_store import MessageStore
from orbitmq.store.types import LogOffset, QueueKey
from support.common.free_ports import free_port
from support.common.waiting import until
from support.store.logs import FILE_SIZE, LIMITS, bodies, message

HOST = hosts.pack("127.0.0.1", 10911)
SYNC, ASYNC = FlushMode.SYNC, FlushMode.ASYNC


@dataclass
class Settings:
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    enable_auto_in_sync_replicas: bool = False
    ha_max_gap_not_in_sync: int = 256 << 20
    slave_timeout: int = 60_000
    ha_send_heartbeat_interval: int = 5_000
    ha_housekeeping_interval: int = 20_000


def open_store(
    root: Path, mode: FlushMode = ASYNC, replicas: Quorum | None = None
) -> tuple[MessageStore, StoreTicks]:
    """A store that ticks with the running loop."""
    loop = asyncio.get_running_loop()
    config = StoreConfig(root=root, commit_log_file_size=FILE_SIZE, limits=LIMITS, flush_mode=mode)
    store = MessageStore(
        OsFileLayer(),
        SystemClock(),
        config,
        HOST,
        notify=lambda: loop.call_soon_threadsafe(ticks.tick),
        replicas=replicas or NO_REPLICAS,
    )
    ticks = StoreTicks(SystemClock(), store)
    store.open()
    ticks.start()
    return store, ticks


@dataclass
class Master:
    """A store, and the port that its slaves connect to."""

    root: Path
    settings: Settings = field(default_factory=Settings)
    mode: FlushMode = ASYNC
    tls: TlsMode = TlsMode.DISABLED
    limits: SenderLimits = field(default_factory=SenderLimits)
    allowed: bool = True

    def __post_init__(self) -> None:
        self.port = free_port("127.0.0.1")
        self.sent = 0

    async def __aenter__(self) -> Master:
        self.quorum = Quorum(
            self.settings,
            is_sync_master=True,
            log_end=lambda: self.store.log.end_offset,
            members_at=lambda _host: 8,
        )
        self.store, self.ticks = open_store(self.root, self.mode, self.quorum)
        self.feed = ReplicaFeed(
            store=self.store,
            quorum=self.quorum,
            limits=lambda: self.limits,
            monotonic_ms=SystemClock().monotonic_ms,
            call_soon=asyncio.get_running_loop().call_soon,
        )
        self.store.add_growth_listener(self.feed.log_grew)

        async def is_member(_host: str) -> bool:
            return self.allowed

        self.server = ReplicaServer(
            self.feed,
            host="127.0.0.1",
            port=self.port,
            tls=ServerContext(ServerTls(mode=self.tls)),
            is_member=is_member,
        )
        self.server.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.server.stop()
        self.ticks.stop()
        self.store.close()

    def put(self, count: int = 1, *, size: int = 50) -> list[asyncio.Future[Outcome]]:
        """Store messages; return the outcome of each."""
        outcomes = []
        for _ in range(count):
            self.sent += 1
            appended = self.store.put(message(b"%06d" % self.sent + b"x" * size))
            outcome = asyncio.get_running_loop().create_future()
            self.store.when_durable(LogOffset(appended.end), outcome.set_result)
            outcomes.append(outcome)
        return outcomes


@dataclass
class Slave:
    """A store that follows a master."""

    root: Path
    master: Master
    mode: FlushMode = ASYNC
    tls: ssl.SSLContext | None = None
    settings: Settings = field(default_factory=Settings)

    async def __aenter__(self) -> Slave:
        self.store, self.ticks = open_store(self.root, self.mode)
        self.follower = LogFollower(store=self.store, settings=self.settings, clock=SystemClock())
        self.store.add_growth_listener(self.follower.log_grew)
        self.link = MasterLink(
            self.follower,
            address=lambda: f"127.0.0.1:{self.master.port}",
            find=lambda: None,
            tls=lambda: self.tls,
        )
        self.link.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.link.stop()
        self.ticks.stop()
        self.store.close()

    async def caught_up(self) -> None:
        """Wait until this slave has the master's log, and compare."""
        await until(
            lambda: self.store.log.end_offset == self.master.store.log.end_offset,
            "the slave has caught up",
        )
        assert bodies(self.store.log) == bodies(self.master.store.log)
        key = QueueKey("Topic", 0)
        await until(
            lambda: self.store.queues.max_offset(*key) == self.master.store.queues.max_offset(*key)
        )


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(90):
            await scenario()

    asyncio.run(main())


@pytest.mark.parametrize("slave_mode", [ASYNC, SYNC])
@pytest.mark.parametrize("master_mode", [ASYNC, SYNC])
def test_a_slave_copies_the_log_over_files_and_what_comes_later(
    tmp_path: Path, master_mode: FlushMode, slave_mode: FlushMode
) -> None:
    async def scenario() -> None:
        async with Master(tmp_path / "m", mode=master_mode) as master:
            first = master.put(60, size=300)
            async with Slave(tmp_path / "s", master, slave_mode) as slave:
                await slave.caught_up()
                assert len(slave.store.log.files.files) > 3
                second = master.put(40, size=900)
                assert {await each for each in second} == {Outcome.DONE}
                assert slave.store.log.end_offset == master.store.log.end_offset
                await slave.caught_up()
            without = {await each for each in first}
            assert without == {Outcome.NO_REPLICA}, "no slave was there"

    run(scenario)


def test_an_acknowledgement_of_a_slave_that_flushes_means_that_its_disk_has_it(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            Master(tmp_path / "m", Settings(in_sync_replicas=2)) as master,
            Slave(tmp_path / "s", master, SYNC) as slave,
        ):
            for _ in range(30):
                (outcome,) = master.put()
                assert await outcome is Outcome.DONE
                assert slave.store.log.flushed_offset == master.store.log.end_offset

    run(scenario)


def test_a_slave_continues_after_it_and_its_master_were_restarted(tmp_path: Path) -> None:
    async def scenario() -> None:
        master = Master(tmp_path / "m", Settings(in_sync_replicas=2))
        async with master, Slave(tmp_path / "s", master) as slave:
            assert {await each for each in master.put(20, size=400)} == {Outcome.DONE}
        async with master:
            outcomes = master.put(20, size=400)
            async with Slave(tmp_path / "s", master) as slave:
                assert {await each for each in outcomes} == {Outcome.DONE}
                await slave.caught_up()

    run(scenario)


def test_a_slave_without_its_master_tries_again_and_says_why_it_waits(tmp_path: Path) -> None:
    async def scenario() -> None:
        master = Master(tmp_path / "m", Settings(in_sync_replicas=2))
        async with Slave(tmp_path / "s", master) as slave:
            await until(lambda: "cannot connect" in (slave.follower.problem or ""))
            async with master:
                assert {await each for each in master.put(3)} == {Outcome.DONE}
                assert slave.follower.problem is None

    run(scenario)


def test_a_message_times_out_when_too_few_slaves_acknowledge_it_and_is_copied_later(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        settings = Settings(in_sync_replicas=3, slave_timeout=1)
        async with (
            Master(tmp_path / "m", settings) as master,
            Slave(tmp_path / "s1", master) as one,
        ):
            await until(lambda: master.quorum.replicas)
            (outcome,) = master.put()
            await until(outcome.done)
            assert outcome.result() is Outcome.REPLICA_TIMED_OUT
            settings.slave_timeout = 60_000
            (outcome,) = master.put()
            async with Slave(tmp_path / "s2", master) as two:
                assert await outcome is Outcome.DONE
                await one.caught_up()
                await two.caught_up()

    run(scenario)


def test_a_slave_that_is_ahead_gets_nothing_and_counts_for_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The original believes it, and appends its own bytes to the foreign log later."""

    async def scenario() -> None:
        ahead = Master(tmp_path / "s")
        async with ahead:
            ahead.put(30)
        async with Master(tmp_path / "m", Settings(in_sync_replicas=2)) as master:
            master.put(3)
            async with Slave(tmp_path / "s", master) as slave:
                before = bodies(slave.store.log)
                await until(lambda: "beyond this log's end" in caplog.text)
                assert master.quorum.replicas == ()
                master.put(1)
                assert bodies(slave.store.log) == before
                assert master.store.flushing.durable_offset == 0

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_a_peer_that_is_no_member_gets_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Master(tmp_path / "m", allowed=False) as master:
            master.put(3)
            reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
            writer.write(encode_report(LogOffset(0)))
            assert await reader.read() == b""
            writer.close()
            assert "add it to haPeers" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(scenario)


@pytest.mark.parametrize("sent", [b"", b"\0", b"\xff" * 8, b"\x16\3\1\0", b"GET / HT"])
def test_a_peer_that_speaks_nonsense_holds_up_no_slave(tmp_path: Path, sent: bytes) -> None:
    async def scenario() -> None:
        async with Master(tmp_path / "m", Settings(in_sync_replicas=2)) as master:
            _, writer = await asyncio.open_connection("127.0.0.1", master.port)
            writer.write(sent)
            async with Slave(tmp_path / "s", master) as slave:
                assert {await each for each in master.put(5)} == {Outcome.DONE}
                await slave.caught_up()
            writer.close()

    run(scenario)


def test_a_slave_that_reads_nothing_costs_its_window_and_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Master(tmp_path / "m") as master:
            with socket.create_connection(("127.0.0.1", master.port)) as peer:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                peer.sendall(encode_report(LogOffset(0)))
                await until(lambda: master.quorum.replicas)
                for _ in range(60):
                    master.put(40, size=3000)
                    await asyncio.sleep(0)
                (connection,) = master.feed.connections
                transport = connection._transport
                assert transport is not None
                assert transport.get_write_buffer_size() <= (1 << 20) + (64 << 10)
                assert master.store.log.end_offset > 6 << 20

    run(scenario)


@pytest.mark.parametrize("is_master", [True, False])
def test_a_silent_peer_is_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_master: bool
) -> None:
    limits = SenderLimits(
        silence_ms_max=1_000_000 if is_master else 1, heartbeat_interval_ms=1_000_000
    )
    settings = Settings(
        ha_send_heartbeat_interval=1_000_000,
        ha_housekeeping_interval=1 if is_master else 1_000_000,
    )

    async def scenario() -> None:
        async with (
            Master(tmp_path / "m", limits=limits) as master,
            Slave(tmp_path / "s", master, settings=settings),
        ):
            silent = "the master sent nothing for" if is_master else "it sent nothing for"
            await until(lambda: silent in caplog.text)

    with caplog.at_level(logging.WARNING):
        run(scenario)


@asynccontextmanager
async def both(tmp_path: Path, server: TlsMode, tls: bool) -> AsyncIterator[tuple[Master, Slave]]:
    context = client_context(ClientTls(enabled=True)) if tls else None
    async with (
        Master(tmp_path / "m", Settings(in_sync_replicas=2), tls=server) as master,
        Slave(tmp_path / "s", master, tls=context) as slave,
    ):
        yield master, slave


@pytest.mark.parametrize(
    ("server", "tls"),
    [(TlsMode.PERMISSIVE, False), (TlsMode.PERMISSIVE, True), (TlsMode.ENFORCING, True)],
)
def test_slaves_follow_by_tls_and_without(tmp_path: Path, server: TlsMode, tls: bool) -> None:
    async def scenario() -> None:
        async with both(tmp_path, server, tls) as (master, slave):
            assert {await each for each in master.put(50, size=1500)} == {Outcome.DONE}
            await slave.caught_up()

    run(scenario)


@pytest.mark.parametrize(
    ("server", "tls", "reason"),
    [
        (TlsMode.ENFORCING, False, "it speaks plaintext, and tls.server.mode=enforcing"),
        (TlsMode.DISABLED, True, "it speaks TLS, and tls.server.mode=disabled"),
    ],
)
def test_a_slave_that_does_not_speak_what_the_master_requires_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, server: TlsMode, tls: bool, reason: str
) -> None:
    async def scenario() -> None:
        async with both(tmp_path, server, tls) as (master, _):
            await until(lambda: reason in caplog.text)
            assert master.quorum.replicas == ()

    with caplog.at_level(logging.WARNING):
        run(scenario)


def test_a_slave_with_other_file_sizes_stops_and_names_the_key(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Master(tmp_path / "m") as master:
            master.put(30, size=900)
            slave = Slave(tmp_path / "s", master)
            async with slave:
                await slave.caught_up()
            files = sorted((tmp_path / "s" / "commitlog").iterdir())
            assert len(files) > 2
            config = replace(slave.store.config, root=tmp_path / "t", commit_log_file_size=1 << 13)
            other = MessageStore(OsFileLayer(), SystemClock(), config, HOST)
            other.open()
            follower = LogFollower(store=other, settings=Settings(), clock=SystemClock())
            link = MasterLink(
                follower,
                address=lambda: f"127.0.0.1:{master.port}",
                find=lambda: None,
                tls=lambda: None,
            )
            link.start()
            await until(lambda: "mappedFileSizeCommitLog" in (follower.problem or ""))
            await link.stop()
            other.close()

    run(scenario)
