"""A broker that cannot start: it says which step failed, why, and what to do, and leaves nothing
half-started.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.config.broker_config import load_broker
from orbitmq.cli.server_process import serve
from orbitmq.common.errors import OrbitError
from orbitmq.store.file_layer import OsFileLayer
from orbitmq.store.store_lock import StoreLock
from support.broker.process import SMALL_FILES, BrokerProcess
from support.common.free_ports import free_port

HOST = "127.0.0.1"


class Scene:
    """The folder and the ports of a broker that is about to start, and what stands in its way until
    `obstacles` is closed.
    """

    def __init__(self, folder: Path, obstacles: ExitStack) -> None:
        self.folder = folder
        self.store = folder / "store"
        self.port = free_port(HOST)
        self.metrics_port = free_port(HOST)
        self.obstacles = obstacles
        self.keys = {
            "listenPort": str(self.port),
            "storePathRootDir": str(self.store),
            "brokerName": "a",
            "metricsExporterType": "PROM",
            "metricsPromExporterPort": str(self.metrics_port),
        }

    def run(self, **keys: str) -> None:
        """Start it as the command does, and stop it when it is up."""
        loaded = load_broker(environment={}, flags=SMALL_FILES | self.keys | keys)
        serve(
            "broker",
            Broker(loaded.settings),
            loaded,
            lambda *_: os.kill(os.getpid(), signal.SIGTERM),
        )

    def process(self, name: str, **keys: str) -> BrokerProcess:
        return BrokerProcess(self.folder / name, self.keys | keys)

    # What may stand in its way.

    def take(self, port: int) -> None:
        """Listen where the broker wants to."""
        self.obstacles.enter_context(socket.create_server((HOST, port)))

    def run_another(self) -> BrokerProcess:
        """Another process that has the store open."""
        other = self.process(
            "other", listenPort=str(free_port(HOST)), metricsExporterType="DISABLE"
        )
        self.obstacles.callback(other.end)
        other.wait_ready()
        return other

    def damage_topics(self) -> None:
        """A file of topics that is not whole, and has no backup."""
        path = self.store / "config" / "topics.json"
        path.parent.mkdir(parents=True)
        path.write_text('{"topicConfigTable":{')
        self.obstacles.callback(path.unlink)

    def block_store(self) -> None:
        """A file where the store's folder would be."""
        self.store.write_text("")
        self.obstacles.callback(self.store.unlink)

    def forbid_store(self) -> None:
        """A folder that may not be written."""
        self.store.mkdir()
        self.store.chmod(0o500)
        self.obstacles.callback(self.store.chmod, 0o700)


Obstacle = Callable[[Scene], object]
OBSTACLES: dict[str, tuple[Obstacle | None, dict[str, str], str]] = {
    "the port is taken": (
        lambda scene: scene.take(scene.port),
        {},
        (
            "broker did not start: remoting server on port {port} did not start: cannot listen on"
            " 127.0.0.1:{port}: Address already in use; another program listens there; stop it, or"
            " choose another port (listenPort)"
        ),
    ),
    "the fast port is taken": (
        lambda scene: scene.take(scene.port - 2),
        {},
        (
            "fast remoting server on port {fast_port} did not start: cannot listen on"
            " 127.0.0.1:{fast_port}: Address already in use"
        ),
    ),
    "the port of metrics is taken": (
        lambda scene: scene.take(scene.metrics_port),
        {},
        (
            "metrics on port {metrics_port} did not start: cannot listen on"
            " 127.0.0.1:{metrics_port}: Address already in use; another program listens there; stop"
            " it, or choose another metricsPromExporterPort"
        ),
    ),
    "another process has the store": (
        Scene.run_another,
        {},
        "store did not start: another process has the store {store} open",
    ),
    "the store's folder is a file": (
        Scene.block_store,
        {},
        "store did not start: the store {store} could not be opened: ",
    ),
    "the store's folder may not be written": (
        Scene.forbid_store,
        {},
        "store did not start: the store {store} could not be opened: ",
    ),
    "topics.json is damaged and has no backup": (
        Scene.damage_topics,
        {},
        "store did not start: {store}/config/topics.json",
    ),
    "brokerIP1 is not known": (
        None,
        {"brokerIP1": "no-such-host.invalid"},
        "broker did not start: brokerIP1=no-such-host.invalid cannot be resolved",
    ),
    "brokerIP1 is of another host": (
        None,
        {"brokerIP1": "192.0.2.1"},
        (
            "remoting server on port {port} did not start: cannot listen on 192.0.2.1:{port}:"
            " Cannot assign requested address; this host has no such address: set bindAddress to"
            " one that it has, or to 0.0.0.0 for all"
        ),
    ),
    "it shall be a slave without a number": (
        None,
        {"brokerRole": "SLAVE", "brokerId": "0"},
        "Slave's brokerId must be > 0",
    ),
    "it shall use DLedger": (
        None,
        {"enableDLegerCommitLog": "true"},
        "enableDLegerCommitLog=true is refused: Elected masters are not supported yet",
    ),
    "the list of name servers is malformed": (
        None,
        {"namesrvAddr": "127.0.0.1:x"},
        "namesrvAddr=127.0.0.1:x cannot be used",
    ),
}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as obstacles:
        yield Scene(tmp_path, obstacles)


def file_marks(folder: Path) -> dict[str, tuple[int, int]]:
    """What tells whether somebody wrote a file."""
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("obstacle", "keys", "says"), OBSTACLES.values(), ids=OBSTACLES.keys())
def test_a_start_that_fails_says_why_and_leaves_nothing(
    scene: Scene, obstacle: Obstacle | None, keys: dict[str, str], says: str
) -> None:
    if obstacle is Scene.forbid_store and os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    if obstacle is not None:
        obstacle(scene)
    had_abort = (scene.store / "abort").exists()
    with pytest.raises(OrbitError) as failure:
        scene.run(**keys)
    assert says.format(
        port=scene.port,
        fast_port=scene.port - 2,
        metrics_port=scene.metrics_port,
        store=scene.store,
    ) in str(failure.value)
    assert (scene.store / "abort").exists() == had_abort
    scene.obstacles.close()
    for port in (scene.port, scene.port - 2, scene.metrics_port):
        socket.create_server((HOST, port)).close()
    lock = StoreLock(OsFileLayer(), scene.store)
    lock.acquire()
    lock.release()
    scene.run()
    assert not (scene.store / "abort").exists() or had_abort


def test_a_damaged_file_is_replaced_by_its_backup(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    config = scene.store / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text("{")
    (config / "topics.json.bak").write_text('{"topicConfigTable":{"Kept":{"topicName":"Kept"}}}')
    with caplog.at_level("INFO"):
        scene.run()
    assert f"backup_used file={config}/topics.json" in caplog.text
    assert "topics_loaded topics=16" in caplog.text, "its own 15, and the one of the backup"


def test_a_broker_that_finds_its_store_taken_touches_nothing_of_it(scene: Scene) -> None:
    other = scene.run_another()
    other.send_signal(signal.SIGSTOP)  # it may still write its checkpoint
    try:
        before = file_marks(scene.store)
        with pytest.raises(OrbitError, match="another process has the store"):
            scene.run()
        assert file_marks(scene.store) == before
    finally:
        other.send_signal(signal.SIGCONT)


def test_the_command_ends_with_1_and_one_sentence(scene: Scene) -> None:
    scene.take(scene.port)
    broker = scene.process("refused")
    assert broker.wait() == 1
    assert (
        f"\norbitmq: broker did not start: remoting server on port {scene.port} did not start"
        in broker.errors()
    )
    assert "Traceback" not in broker.errors()
