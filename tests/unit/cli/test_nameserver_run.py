"""`orbitmq nameserver run` and `mqnamesrv`: configuration, output, exit codes and life of a name
server process.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from orbitmq.cli import mqnamesrv
from orbitmq.cli.main import cli

USAGE_START = (
    "usage: mqnamesrv [-c <arg>] [-h] [-n <arg>] [-p]\n -c,--configFile <arg>    Name server config"
    " properties file\n"
)


@contextmanager
def process(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A child that is killed at the latest when the test ends."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("ORBITMQ_LOG", "ROCKETMQ"))
    }
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import sys; from orbitmq.cli.{command[0]} import main; main()",
            *command[1:],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean | environment,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-x"], "Unrecognized option: -x\n"),
        (["-m"], "Unrecognized option: -m\n"),
        (["--nope"], "Unrecognized option: --nope\n"),
        (["-c"], "Missing argument for option: c\n"),
        (["--configFile"], "Missing argument for option: c\n"),
    ],
)
def test_mqnamesrv_refuses_a_command_line_as_the_original_does(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mqnamesrv.run(arguments) == 1
    printed = capsys.readouterr()
    assert printed.err == message
    assert printed.out.startswith(USAGE_START)


@pytest.mark.parametrize("option", ["-h", "--help", "-help"])
def test_mqnamesrv_helps(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mqnamesrv.run([option]) == 0
    assert capsys.readouterr().out.startswith(USAGE_START)


@pytest.mark.parametrize("option", ["-c", "--configFile", "-configFile", "--config"])
def test_mqnamesrv_prints_its_configuration(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=1234\nproductEnvName=test\n")
    assert mqnamesrv.run([option, str(file), "-n", "127.0.0.1:9876", "-p"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"load config properties file OK, {file}"
    assert {
        "listenPort=1234",
        "productEnvName=test",
        f"configStorePath={file}",
        "connectTimeoutMillis=3000",
    } <= set(lines)


def test_mqnamesrv_that_cannot_start_is_255(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mqnamesrv.run(["-c", "/no/such/file"]) == 255
    cause = "No such file or directory; check the spelling of its path"
    assert (
        capsys.readouterr().err
        == f"mqnamesrv: configuration file /no/such/file cannot be read: {cause}\n"
    )
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=x\n")
    assert mqnamesrv.run(["-c", str(file), "-p"]) == 255
    assert (
        capsys.readouterr().err
        == f"mqnamesrv: {file}:1: listenPort=x cannot be used: allowed is a whole number from 0 to"
        " 65535\n"
    )


@pytest.mark.parametrize(
    ("variable", "text", "message"),
    [
        (
            "ORBITMQ_LOG_LEVEL",
            "loud",
            (
                "mqnamesrv: logging cannot be set up: Unknown level: 'LOUD'; see ORBITMQ_LOG_LEVEL"
                " and ORBITMQ_LOG_FORMAT\n"
            ),
        ),
        (
            "ORBITMQ_LOG_FORMAT",
            "x",
            (
                "mqnamesrv: logging cannot be set up: 'x' is not a valid LogFormat; see"
                " ORBITMQ_LOG_LEVEL and ORBITMQ_LOG_FORMAT\n"
            ),
        ),
        (
            "ORBITMQ_LOG_FILE",
            "/dev/null/x/y",
            (
                "mqnamesrv: log file /dev/null/x/y cannot be written: Not a directory; set"
                " --log-file or ORBITMQ_LOG_FILE\n"
            ),
        ),
    ],
)
def test_logs_that_cannot_be_set_up_are_told_in_one_message(
    variable: str, text: str, message: str
) -> None:
    with process("mqnamesrv", **{variable: text}) as child:
        _, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (255, message)


def test_run_prints_the_configuration_that_flags_environment_and_file_make(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text("listenPort=1\nserverWorkerThreads=9\n")
    arguments = [
        "nameserver",
        "run",
        "-c",
        str(file),
        "--port",
        "2",
        "--bind",
        "::1",
        "--set",
        "enableTopicList=false",
    ]
    environment = {"ORBITMQ_ENABLE_TOPIC_LIST": "true", "ORBITMQ_MAX_CONNECTIONS": "7"}
    result = CliRunner(env=environment).invoke(cli, [*arguments, "-p"])
    assert result.exit_code == 0
    assert {"listenPort=2", "bindAddress=::1", "enableTopicList=false", "maxConnections=7"} <= set(
        result.stdout.splitlines()
    )
    assert (
        result.stderr
        == f"warning: {file}:2: serverWorkerThreads has no effect: One event loop serves all"
        " connections: there are no such threads.\n"
    )
    important = CliRunner().invoke(cli, [*arguments, "-m"]).stdout.splitlines()
    assert [line.split("=")[0] for line in important] == [
        "kvConfigPath",
        "bindAddress",
        "listenPort",
        "tls.server.mode",
        "tls.test.mode.enable",
    ]


def test_run_with_a_value_that_cannot_be_used_is_1() -> None:
    result = CliRunner().invoke(cli, ["nameserver", "run", "--port", "70000"])
    assert result.exit_code == 1
    assert (
        result.stderr
        == "orbitmq: command line: listenPort=70000 cannot be used: allowed is a whole number from"
        " 0 to 65535\n"
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_mqnamesrv_says_where_it_listens_and_stops_cleanly_at_a_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    file = tmp_path / "namesrv.conf"
    file.write_text(f"listenPort=0\nkvConfigPath={tmp_path}/kvConfig.json\n")
    with process("mqnamesrv", "-c", str(file), ROCKETMQ_HOME=str(tmp_path)) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == f"load config properties file OK, {file}\n"
        boot = re.fullmatch(
            r"The Name Server boot success\. serializeType=JSON, address 127\.0\.0\.1:(\d+)\n",
            child.stdout.readline(),
        )
        assert boot is not None
        socket.create_connection(("127.0.0.1", int(boot[1]))).close()
        child.send_signal(number)
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors
    assert f"stopping signal={number.name}" in (tmp_path / "logs" / "namesrv.log").read_text()


def test_run_says_what_to_try_and_logs_json_lines(tmp_path: Path) -> None:
    arguments = [
        "--port",
        "0",
        "--set",
        f"kvConfigPath={tmp_path}/kvConfig.json",
        "--log-format",
        "json",
    ]
    with process("main", "nameserver", "run", *arguments) as child:
        assert child.stdout is not None
        listens = re.fullmatch(
            r"The name server listens on (127\.0\.0\.1:\d+) \(TLS permissive\); Ctrl-C stops"
            r" it\.\n",
            child.stdout.readline(),
        )
        assert listens is not None
        assert (
            child.stdout.readline()
            == f"Brokers join it with namesrvAddr={listens[1]}. Try: orbitmq cluster list -n"
            f" {listens[1]}\n"
        )
        child.terminate()
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0
    assert any(
        json.loads(line)["message"] == "stopping signal=SIGTERM" for line in errors.splitlines()
    )


def test_a_port_that_is_taken_is_said_in_one_message(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        arguments = [
            "--port",
            port,
            "--set",
            f"kvConfigPath={tmp_path}/kvConfig.json",
            "--log-level",
            "error",
        ]
        with process("main", "nameserver", "run", *arguments) as child:
            _, errors = child.communicate(timeout=60)
            assert child.returncode == 1
    assert errors.startswith("orbitmq: name server did not start: ")
    assert port in errors
    assert errors.count("\n") == 1
