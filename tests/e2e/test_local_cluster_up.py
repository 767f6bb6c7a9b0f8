"""`orbitmq up --ephemeral --json`, as tests of other languages use it: one line says where all is,
and it ends with their process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

from support.common.free_ports import free_port
from support.common.waiting import wait_until

UP = [sys.executable, "-m", "orbitmq", "up", "--ephemeral", "--json"]
PARENT = (
    "import subprocess, sys; subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL);"
    " sys.stdin.read()"
)


def listens(address: str) -> bool:
    host, _, port = address.partition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_several_brokers_are_told_with_their_addresses_and_stores() -> None:
    with subprocess.Popen([*UP, "--brokers", "2"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        places = found["brokers"]
        assert list(places) == ["broker-a", "broker-b"]
        assert all(
            listens(place["address"]) and Path(place["store"]).is_dir() for place in places.values()
        )
        assert places["broker-a"] == {"address": found["broker"], "store": found["store"]}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not any(Path(place["store"]).exists() for place in places.values())


def test_it_ends_with_the_process_that_started_it_however_that_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, *UP, "--exit-with-parent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        found = json.loads(parent.stdout.readline())
        assert listens(found["broker"])
        os.kill(parent.pid, signal.SIGKILL)
        wait_until(lambda: not listens(found["broker"]), "the broker ends")
        wait_until(lambda: not Path(found["store"]).exists(), "the store is removed")


def are_free(*ports: int) -> bool:
    """Whether a server could listen on these ports now."""
    try:
        for port in ports:
            socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_brokers_of_a_store_that_stays_have_folders_and_ports_that_follow(tmp_path: Path) -> None:
    port = wait_until(
        lambda: (found := free_port("127.0.0.1")) * are_free(found + 8, found + 10, found + 11),
        "a port with room for a second broker",
    )
    command = [
        sys.executable,
        "-m",
        "orbitmq",
        "up",
        "--json",
        "--port",
        "0",
        "--brokers",
        "2",
        "--store",
        str(tmp_path),
    ]
    with subprocess.Popen(
        [*command, "--broker-port", str(port)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())["brokers"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert found["broker-a"] == {
        "address": f"127.0.0.1:{port}",
        "store": str(tmp_path / "broker-a"),
    }
    assert found["broker-b"] == {
        "address": f"127.0.0.1:{port + 10}",
        "store": str(tmp_path / "broker-b"),
    }
    assert (tmp_path / "broker-b").is_dir()


def test_a_misspelt_key_is_told_with_time_and_level() -> None:
    with subprocess.Popen(
        [*UP, "--set", "flushDiskTyp=SYNC_FLUSH"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=60)
    line = (
        r"\d{4}-\S+ \S+ WARNING \S+ configuration .*unknown key flushDiskTyp .*did you mean"
        r" flushDiskType\?"
    )
    assert any(re.fullmatch(line, found) for found in said.splitlines())


def test_a_store_without_messages_is_started_again_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "orbitmq",
        "up",
        "--json",
        "--port",
        "0",
        "--broker-port",
        "0",
        "--store",
        str(tmp_path),
    ]
    for _ in range(2):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=60)[1] == ""
