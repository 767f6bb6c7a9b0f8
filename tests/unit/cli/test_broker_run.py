"""`mqbroker`: the exit codes of the original, its boot line, and what a start logs."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from broker_process import SMALL_FILES
from orbitmq.cli import mqbroker
from orbitmq.embedded.cluster import free_port
from orbitmq.store.store_lock import StoreLock
from process_files import ProcessFiles


def started(folder: Path, port: int | None = None, **keys: str) -> int:
    """The exit code of `mqbroker` with a file of these keys."""
    own = SMALL_FILES | {"listenPort": str(port or free_port("127.0.0.1")), "storePathRootDir": str(folder / "store"), "brokerName": "a"}
    file = folder / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in (own | keys).items()))
    return mqbroker.run(["-c", str(file)])


def test_what_it_was_told_and_cannot_work_with_is_253(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert started(tmp_path, namesrvAddr="nonsense") == 253
    assert started(tmp_path, brokerRole="SLAVE") == 253
    assert "mqbroker: brokerRole=SLAVE is refused: this broker cannot follow a master yet" in capsys.readouterr().err


def test_a_store_that_cannot_be_used_is_253(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / f"{0:020}").write_bytes(b"too short")
    assert started(tmp_path) == 253
    assert "store did not start" in capsys.readouterr().err


def test_tables_that_cannot_be_read_are_253(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text("{broken")
    assert started(tmp_path) == 253
    assert "topics.json.bak is missing: restore one of them" in capsys.readouterr().err


def test_what_only_stands_in_its_way_is_255(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert started(tmp_path, taken.getsockname()[1]) == 255
    lock = StoreLock(ProcessFiles(), tmp_path / "store")
    lock.acquire()
    assert started(tmp_path) == 255
    lock.release()
    assert started(tmp_path, fileReservedTime="soon") == 255
    assert mqbroker.run(["-c", str(tmp_path / "missing.conf")]) == 255
    capsys.readouterr()


def test_a_command_line_that_is_wrong_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert mqbroker.run(["--bad"]) == 1
    assert capsys.readouterr().err == "Unrecognized option: --bad\n"


def test_a_start_logs_the_configuration_and_says_how_headers_are_encoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_SERIALIZE_TYPE", "ROCKETMQ")
    port, said = free_port("127.0.0.1"), list[str]()

    def print_and_stop(line: str, **_: object) -> None:
        said.append(line)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("builtins.print", print_and_stop)
    assert started(tmp_path, port, fileReservedTime="71") == 0
    assert said == [f"The broker[a, 127.0.0.1:{port}] boot success. serializeType=ROCKETMQ"]
    logged = capsys.readouterr().err
    for line in ("brokerName=a", "fileReservedTime=71", f"listenPort={port}"):
        assert f"INFO orbitmq.broker.broker config {line}\n" in logged


def test_logs_go_to_the_home_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert started(tmp_path, taken.getsockname()[1], rocketmqHome=str(tmp_path / "home")) == 255
    assert "config rocketmqHome=" in (tmp_path / "home" / "logs" / "broker.log").read_text()
    capsys.readouterr()
