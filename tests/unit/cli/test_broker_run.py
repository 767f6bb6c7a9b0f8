"""`mqbroker`: the exit codes of the original, its boot line, and what a start logs."""

from __future__ import annotations

import os
import re
import signal
import socket
from pathlib import Path

import pytest

from orbitmq.cli import mqbroker
from orbitmq.store.store_lock import StoreLock
from support.broker.process import SMALL_FILES, BrokerProcess
from support.common.free_ports import free_port
from support.common.process_files import ProcessFiles


def started(folder: Path, port: int | None = None, **keys: str) -> int:
    """The exit code of `mqbroker` with a file of these keys."""
    own = SMALL_FILES | {
        "listenPort": str(port or free_port("127.0.0.1")),
        "storePathRootDir": str(folder / "store"),
        "brokerName": "a",
    }
    file = folder / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in (own | keys).items()))
    return mqbroker.run(["-c", str(file)])


def test_what_it_was_told_and_cannot_work_with_is_253(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert started(tmp_path, namesrvAddr="nonsense") == 253
    assert started(tmp_path, brokerRole="SLAVE") == 253
    assert "mqbroker: Slave's brokerId must be > 0" in capsys.readouterr().err


def test_the_exit_codes_are_those_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = " ".join((Path(__file__).parents[3] / "docs" / "broker.md").read_text().split())
    assert (
        "| 255 (-1) | the `-c` file is missing; a value in it cannot be read; `plain_acl.yml`"
        in page
    )
    assert "| 253 (-3) | `namesrvAddr` or `-n` is no address; a value is refused" in page
    (tmp_path / "file").write_text("")
    conf = tmp_path / "acl"
    conf.mkdir()
    (conf / "plain_acl.yml").write_text("accounts: [")
    assert mqbroker.run(["-c", str(tmp_path / "missing.conf")]) == 255
    assert started(tmp_path, fileReservedTime="soon") == 255
    assert started(tmp_path, aclEnable="true", aclFolder=str(conf)) == 255
    assert started(tmp_path, brokerRole="SLAVE", brokerId="0") == 253
    assert started(tmp_path, enableDLegerCommitLog="true") == 253
    assert mqbroker.run(["-n", "nonsense"]) == 253
    assert started(tmp_path, storePathRootDir=str(tmp_path / "file" / "store")) == 253
    capsys.readouterr()


def test_a_store_path_that_is_a_file_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "store").write_text("")
    assert started(tmp_path) == 253
    told = capsys.readouterr().err.splitlines()[-1]
    assert "is a file, not a directory; check the spelling" in told
    assert "Errno" not in told


def test_a_terminal_shows_what_was_changed_then_the_warnings_and_the_file_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    home = tmp_path / "home"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert started(tmp_path, port, rocketmqHome=str(home), fileReservdTime="48") == 255
    lines = capsys.readouterr().err.splitlines()
    keys = [line.partition(" config ")[2].partition("=")[0] for line in lines if " config " in line]
    assert "brokerName" in keys
    assert "flushDiskType" not in keys
    last = max(at for at, line in enumerate(lines) if " config " in line)
    assert re.search(r" config_listed keys=\d{3} changed=\d\d?; -p prints all", lines[last + 1])
    assert "unknown key fileReservdTime is ignored: did you mean" in lines[last + 2]
    assert "config flushDiskType=ASYNC_FLUSH" in (home / "logs" / "broker.log").read_text()


def test_a_store_that_cannot_be_used_is_253(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / f"{0:020}").write_bytes(b"too short")
    assert started(tmp_path) == 253
    assert "store did not start" in capsys.readouterr().err


def test_tables_that_cannot_be_read_are_253(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text("{broken")
    assert started(tmp_path) == 253
    assert "topics.json.bak is missing: restore one of them" in capsys.readouterr().err


def test_what_only_stands_in_its_way_is_255(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
        assert f"INFO orbitmq.cli.server_process config {line}\n" in logged


def test_logs_go_to_the_home_that_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert started(tmp_path, taken.getsockname()[1], rocketmqHome=str(tmp_path / "home")) == 255
    assert "config rocketmqHome=" in (tmp_path / "home" / "logs" / "broker.log").read_text()
    capsys.readouterr()


def test_an_idle_broker_takes_as_much_memory_as_the_readme_says(tmp_path: Path) -> None:
    said = re.search(
        r"an idle broker takes about (\d+) MB",
        (Path(__file__).parents[3] / "README.md").read_text(),
    )
    assert said is not None
    keys = {"listenPort": str(free_port("127.0.0.1")), "storePathRootDir": str(tmp_path / "store")}
    broker = BrokerProcess(tmp_path, keys)
    try:
        broker.wait_ready()
        status = Path(f"/proc/{broker.pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    finally:
        broker.end()
    assert resident is not None
    assert 0.5 < int(resident[1]) / 1000 / int(said[1]) < 1.5
