"""The real Apache RocketMQ: fetched by Maven into a cache, its servers run on 127.0.0.1 as child
processes of the tests.

The cache is `${ORBITMQ_APACHE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/orbitmq-apache}/VERSION`: `lib/`
with the jars and `loopback.so`, which makes a bind to every interface a bind to 127.0.0.1 (4.9, and
the HA port of 5.x, cannot be told to). Knows nothing of OrbitMQ. Invariant: what runs inside `with
running(...)` has ended after it, by SIGTERM, else SIGKILL.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from support.common.waiting import wait_until

HERE = Path(__file__).parent
STOP_WITHIN_S = 20.0
_PORTS = range(22_000, 22_990)  # below the range from which systems take client ports
_DOWNLOAD_MB = {"4": 28, "5": 102}
_CLIENT_ONLY = ("4.9.8",)  # its servers are not published as a whole
_OPENED_PACKAGES = (
    "java.nio",
    "sun.nio.ch",
    "java.lang",
    "java.util",
    "jdk.internal.ref",
    "jdk.internal.misc",
)
# Small and quick to start: the tests run several JVMs next to each other for some seconds.
_JVM_OPTIONS = (
    "-Xms64m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
)
_LOGGING = """<configuration>
  <appender name="FILE" class="{shade}ch.qos.logback.core.FileAppender">
    <file>{home}/logs/apache.log</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %p %t %c{{0}} - %m%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="FILE"/></root>
</configuration>
"""


class ApacheUnavailable(Exception):
    """A release cannot be had here: Maven is missing or could not resolve it."""


def accepts(port: int) -> bool:
    """Whether somebody listens on that loopback port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port(neighbours: tuple[int, ...] = ()) -> int:
    """A port that nobody listens on, free together with its neighbours at these distances."""

    def is_free(port: int) -> bool:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
            return True

    for _ in range(200):
        port = random.choice(_PORTS)
        if all(is_free(port + distance) for distance in (0, *neighbours)):
            return port
    raise RuntimeError(
        f"no free port in {_PORTS}: something else uses that range, or servers of earlier runs are"
        " still there"
    )


def _publish(new: Path, place: Path) -> None:
    """Put a finished directory in its place, unless somebody else was quicker."""
    try:
        new.rename(place)
    except OSError:
        shutil.rmtree(new)


@dataclass(frozen=True)
class Release:
    """One published release, by its version."""

    version: str

    @property
    def is_5(self) -> bool:
        return self.version.startswith("5.")

    @property
    def cache(self) -> Path:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return (
            Path(os.environ.get("ORBITMQ_APACHE_CACHE") or Path(base) / "orbitmq-apache")
            / self.version
        )

    @property
    def lib(self) -> Path:
        return self.cache / "lib"

    def fetch(self) -> Self:
        """Fill the cache with the jars and the shim if they are not there yet; several may do so at
        once.
        """
        if not self.lib.is_dir():
            self._fetch_jars()
        shim = self.cache / "loopback.so"
        if not shim.exists() and shutil.which("cc"):
            new = shim.with_suffix(f".{os.getpid()}")
            subprocess.run(
                ["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", new, HERE / "loopback.c", "-ldl"],
                check=True,
            )
            new.rename(shim)
        return self

    def _fetch_jars(self) -> None:
        if shutil.which("mvn") is None:
            raise ApacheUnavailable(f"Maven is needed to fetch Apache RocketMQ {self.version}")
        size = _DOWNLOAD_MB[self.version[0]]
        print(
            f"fetching Apache RocketMQ {self.version} into {self.cache}: some {size} MB",
            file=sys.stderr,
            flush=True,
        )
        self.cache.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix="fetching.", dir=self.cache))
        pom = HERE / (
            "pom-5.xml"
            if self.is_5
            else "pom-client-4.9.xml"
            if self.version in _CLIENT_ONLY
            else "pom-4.9.xml"
        )
        goal = [
            "dependency:copy-dependencies",
            "-DincludeScope=runtime",
            f"-DoutputDirectory={new}",
        ]
        maven = ["mvn", "-q", "-B", "-f", str(pom), f"-Drocketmq.version={self.version}", *goal]
        run = subprocess.run(maven, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            shutil.rmtree(new)
            raise ApacheUnavailable(
                f"Maven could not resolve Apache RocketMQ {self.version}:"
                f" {(run.stdout + run.stderr).strip()[-500:]}"
            )
        _publish(new, self.lib)

    def compiled(self) -> Path:
        """The directory with the classes of the programs in `java/`, compiled against this release
        and kept in its cache.
        """
        sources = sorted((HERE / "java").glob("*.java"))
        digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[
            :12
        ]
        classes = self.cache / f"classes-{digest}"
        if not classes.is_dir():
            new = Path(tempfile.mkdtemp(prefix="compiling.", dir=self.cache))
            javac = [
                "javac",
                "-nowarn",
                "-encoding",
                "UTF-8",
                "-d",
                str(new),
                "-cp",
                f"{self.lib}/*",
                *map(str, sources),
            ]
            said = subprocess.run(javac, capture_output=True, text=True, check=False)
            if said.returncode != 0:
                raise RuntimeError(
                    "the programs in java/ do not compile against"
                    f" {self.version}:\n{said.stdout}{said.stderr}"
                )
            _publish(new, classes)
        return classes

    def java(
        self,
        home: Path,
        main_class: str,
        *arguments: str,
        options: tuple[str, ...] = (),
        compiled: bool = False,
    ) -> list[str]:
        """The command that runs a class of this release with `home` as its user's home and its
        RocketMQ home, which it makes.
        """
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "logs").mkdir(exist_ok=True)
        level = os.environ.get("ORBITMQ_APACHE_LOG", "WARN")
        plain = _LOGGING.format(shade="", home=home, level=level)
        for name in (
            "logback.xml",
            "logback_broker.xml",
            "logback_namesrv.xml",
            "logback_tools.xml",
        ):
            (home / "conf" / name).write_text(plain)
        shaded = _LOGGING.format(shade="org.apache.rocketmq.logging.", home=home, level=level)
        (home / "conf" / "rmq.logback.xml").write_text(shaded)
        class_path = [
            str(home / "conf"),
            f"{self.lib}/*",
            *([str(self.compiled())] if compiled else []),
        ]
        return [
            "java",
            *_JVM_OPTIONS,
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED_PACKAGES),
            "-Djava.net.preferIPv4Stack=true",
            f"-Duser.home={home}",
            f"-Drocketmq.home.dir={home}",
            f"-Drmq.logback.configurationFile={home}/conf/rmq.logback.xml",
            f"-Drocketmq.client.logRoot={home}/logs",
            "-Drocketmq.client.logLevel=WARN",
            f"-Drocketmq.log.root={home}/logs",
            *options,
            "-cp",
            os.pathsep.join(class_path),
            main_class,
            *arguments,
        ]


class Server:
    """A child process that serves on one loopback port; `running` starts it and ends it."""

    def __init__(
        self,
        command: list[str],
        port: int,
        console: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = port
        self._command = command
        self._console = console
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the process without waiting for it, so that several can start at the same time."""
        with self._console.open("ab") as out:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=self._environment,
            )

    def wait_ready(self) -> None:
        """Wait until the port accepts; a process that ended instead is an error with what it
        printed last.
        """
        wait_until(
            lambda: not self.is_alive() or accepts(self.port),
            f"{self._command[0]} on port {self.port}",
        )
        if not self.is_alive():
            raise RuntimeError(
                f"{' '.join(self._command)}\nended before it listened on"
                f" {self.port}:\n{self.console_tail()}"
            )

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def console(self) -> str:
        """Everything that it printed."""
        return self._console.read_text(errors="replace") if self._console.exists() else ""

    def console_tail(self) -> str:
        return self.console()[-3000:]

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server was not started"
        self._process.send_signal(number)

    def wait_ended(self, within_s: float = STOP_WITHIN_S) -> int:
        """Wait for the end of the process and return its exit status."""
        assert self._process is not None, "the server was not started"
        return self._process.wait(within_s)

    def stop(self) -> None:
        """End the process if it still runs: SIGTERM, and SIGKILL when that does not end it in
        time.
        """
        if not self.is_alive():
            return
        self.send_signal(signal.SIGTERM)
        try:
            self.wait_ended()
        except subprocess.TimeoutExpired:
            self.send_signal(signal.SIGKILL)
            self.wait_ended()


@contextmanager
def running(*servers: Server) -> Iterator[None]:
    """All of these started at the same time, and every one of them ended with the block."""
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_ready()
        yield
    finally:
        for server in servers:
            if server.is_alive():
                server.send_signal(signal.SIGTERM)
        for server in servers:
            server.stop()


def _server(
    release: Release,
    home: Path,
    port: int,
    main_class: str,
    settings: Mapping[str, object],
    options: tuple[str, ...],
    variables: Mapping[str, str],
) -> Server:
    """A server of `release` that reads `settings` from a file in its home."""
    command = release.java(
        home, main_class, "-c", str(home / "conf" / "server.conf"), options=options
    )
    loopback = {"bindAddress": "127.0.0.1"} if release.is_5 else {}
    (home / "conf" / "server.conf").write_text(
        "".join(f"{key}={value}\n" for key, value in {**loopback, **settings}.items())
    )
    shim = release.cache / "loopback.so"
    preload = {"LD_PRELOAD": str(shim)} if shim.exists() else {}
    return Server(
        command, port, home / "console.log", {"ROCKETMQ_HOME": str(home), **preload, **variables}
    )


def name_server(
    release: Release,
    home: Path,
    settings: Mapping[str, object] | None = None,
    options: tuple[str, ...] = (),
) -> Server:
    """A real name server with its files in `home`."""
    port = free_port()
    own = {
        "listenPort": port,
        "kvConfigPath": home / "kvConfig.json",
        "configStorePath": home / "namesrv.properties",
    }
    return _server(
        release,
        home,
        port,
        "org.apache.rocketmq.namesrv.NamesrvStartup",
        {**own, **(settings or {})},
        options,
        {},
    )


def small_broker(home: Path, port: int, name_servers: list[str]) -> dict[str, object]:
    """The configuration of a broker with small files in `home`, of whosever make it is."""
    return {
        "brokerClusterName": "DefaultCluster",
        "namesrvAddr": ";".join(name_servers),
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": port,
        "storePathRootDir": home / "store",
        "storePathCommitLog": home / "store" / "commitlog",
        "mappedFileSizeCommitLog": 4 << 20,
        "mappedFileSizeConsumeQueue": 60_000,
        "maxHashSlotNum": 1000,
        "maxIndexNum": 4000,
        "traceTopicEnable": "false",
        "diskMaxUsedSpaceRatio": 95,
        "brokerFastFailureEnable": "false",  # or a machine that is busy makes sends fail
    }


def broker(
    release: Release,
    home: Path,
    name_servers: list[str],
    *,
    name: str = "broker-a",
    cluster: str = "DefaultCluster",
    broker_id: int = 0,
    settings: Mapping[str, object] | None = None,
    options: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> Server:
    """A real broker with small files in `home`, which registers with all `name_servers`."""
    port = free_port((-2, 1))  # its fast port and its replication port
    own = {
        "brokerClusterName": cluster,
        "brokerName": name,
        "brokerId": broker_id,
        "haListenPort": port + 1,
    }
    own["brokerRole"] = "SLAVE" if broker_id else "ASYNC_MASTER"
    merged = {**small_broker(home, port, name_servers), **own, **(settings or {})}
    return _server(
        release,
        home,
        port,
        "org.apache.rocketmq.broker.BrokerStartup",
        merged,
        options,
        variables or {},
    )
