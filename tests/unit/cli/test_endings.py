"""Whatever the system does to a command, it says so in one sentence or ends in silence: no command
shows a traceback.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orbitmq.cli import mqbroker, mqnamesrv
from orbitmq.cli.main import cli
from support.cli.command_tree import ASK_SERVERS, EXAMPLES, NOBODY, RUN_SERVERS
from support.nameserver.thread import RunningNameServer

WITHIN_S = 60.0
PATIENT = ("--timeout-ms", "60000")


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ORBITMQ_USER_PASSWORD", "secret")
    monkeypatch.setattr(
        logging.getLogger(), "handlers", []
    )  # those of servers that ran in this process write to streams that are closed


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, list(arguments), prog_name="orbitmq")
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def to_servers(command: str, address: str) -> list[str]:
    """The example of a command, to name servers at that address."""
    return [*(text.replace(NOBODY, address) for text in EXAMPLES[command]), "-n", address]


# -- nobody reads what is printed


def unread(program: Callable[[], object]) -> object:
    """The exit code of a program both of whose standard streams are a pipe without a reader."""
    reader, writer = os.pipe()
    os.close(reader)
    with (
        open(writer, "w") as pipe,  # noqa: PTH123
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdout", pipe)
        patch.setattr(sys, "stderr", pipe)
        try:
            return program()
        except SystemExit as ended:
            return ended.code


def exit_code(*arguments: str) -> object:
    return unread(lambda: cli.main(args=list(arguments), prog_name="orbitmq"))


@pytest.mark.parametrize("command", EXAMPLES)
def test_a_command_whose_reader_is_gone_ends_with_141(command: str) -> None:
    arguments = to_servers(command, NOBODY) if command in ASK_SERVERS else EXAMPLES[command]
    assert exit_code(*command.split(), "--help") == 141
    if command not in RUN_SERVERS:
        assert exit_code(*arguments) == 141


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["nonsense"], ["broker", "run", "-p"], ["nameserver", "run", "-m"]],
)
def test_what_is_printed_before_a_command_runs_may_be_left_unread(arguments: list[str]) -> None:
    assert exit_code(*arguments) == 141


def test_an_answer_of_servers_may_be_left_unread(lonely_name_server: str) -> None:
    for output in ("table", "json", "yaml"):
        assert exit_code("topic", "list", "-o", output, "-n", lonely_name_server) == 141


@pytest.mark.parametrize("argument", ["-p", "-h", "--bad"])
@pytest.mark.parametrize(
    "run_program", [mqbroker.run, mqnamesrv.run], ids=["mqbroker", "mqnamesrv"]
)
def test_a_drop_in_whose_reader_is_gone_ends_with_141(
    run_program: Callable[[list[str]], int], argument: str
) -> None:
    assert unread(lambda: run_program([argument])) == 141


def process(*arguments: str, program: str = "main") -> subprocess.Popen[str]:
    """A program whose standard output nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    code = f"from orbitmq.cli.{program} import main; main()"
    try:
        return subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(writer)


def test_nothing_is_left_for_the_interpreter_to_flush_at_its_exit() -> None:
    with process("-p", program="mqbroker") as child:
        _, errors = child.communicate(timeout=WITHIN_S)
    assert (child.returncode, errors) == (141, "")


def test_a_server_serves_though_nobody_reads_where_it_listens() -> None:
    with process("nameserver", "run", "--port", "0", "--set", "tls.server.mode=disabled") as child:
        try:
            assert child.stderr is not None
            address = next(
                found
                for line in child.stderr
                if (found := re.search(r"listening address=(\S+)", line))
            )
            assert run("cluster", "list", "-n", address[1]).exit_code == 0
            child.send_signal(signal.SIGTERM)
            _, errors = child.communicate(timeout=WITHIN_S)
        finally:
            child.kill()
    assert child.returncode == 0
    assert "Traceback" not in errors


def test_a_program_without_standard_streams_runs() -> None:
    code = "from orbitmq.cli.main import main; main()"
    shell = f"exec {sys.executable} -c '{code}' broker run -p <&- >&-"
    ended = subprocess.run(
        ["sh", "-c", shell], stderr=subprocess.PIPE, text=True, check=False, timeout=WITHIN_S
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_output_that_takes_nothing_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    monkeypatch.setattr(sys, "stdout", full)
    with pytest.raises(SystemExit) as ended:
        cli.main(args=["--version"], prog_name="orbitmq")
    assert ended.value.code == 1
    assert "cannot be used: No space left on device; free some space" in capsys.readouterr().err
    with suppress(OSError):
        full.close()


# -- servers that are not there, or say nothing


@pytest.mark.parametrize("command", ASK_SERVERS)
def test_a_name_server_that_is_not_there_is_told(command: str) -> None:
    result = run(*to_servers(command, NOBODY))
    assert result.exit_code == 3
    text = (
        r"orbitmq: (no name server answers: )?cannot connect to 127\.0\.0\.1:1: Connection refused;"
        r" is a server running there\?\n"
    )
    assert re.fullmatch(text, result.stderr)


@pytest.fixture(scope="module")
def lonely_name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server that knows a broker which is not there any more."""
    with RunningNameServer(tmp_path_factory.mktemp("names"), broker_address=NOBODY) as servers:
        yield servers.address


ASK_NAME_SERVERS_ALONE = {
    *(
        "broker add-write-perm",
        "cluster list",
        "kv delete",
        "kv show",
        "kv list",
        "kv update",
        "nameserver config",
        "topic list",
        "topic route",
    ),
    *("dlq list", "spark dlq"),  # no topic of dead letters is registered
}
LEFT_OUT = {
    "broker wipe-write-perm",
    "spark archive",
}  # the one changes what others find; the other starts Spark before it asks brokers


@pytest.mark.parametrize("command", [command for command in ASK_SERVERS if command not in LEFT_OUT])
def test_a_broker_that_is_not_there_is_told(command: str, lonely_name_server: str) -> None:
    arguments = [text.replace("orders", "TopicTest") for text in EXAMPLES[command]]
    own = (
        ["--option", "retryTimeout=1ms"] if command.startswith("spark ") else []
    )  # Spark's reads are patient for two minutes
    result = run(*arguments, *own, "-n", lonely_name_server)
    if command in ASK_NAME_SERVERS_ALONE:
        assert result.exit_code == 0 or result.stderr.startswith("orbitmq: ")
    else:
        assert result.exit_code == 3
        assert re.search(
            r"^orbitmq: .*127\.0\.0\.1:1\b.*is a (server|broker) running there\?$",
            result.stderr,
            re.MULTILINE,
        )


@contextmanager
def silent_server() -> Iterator[str]:
    """A server that answers nothing, and interrupts this process, as Ctrl-C does, when it is asked
    something.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WITHIN_S)
        ended = threading.Event()

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1)
                os.kill(os.getpid(), signal.SIGINT)
                ended.wait(WITHIN_S)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        thread.join(WITHIN_S)


@pytest.mark.parametrize("command", ASK_SERVERS)
def test_ctrl_c_ends_a_command_that_waits_for_a_server_with_130(command: str) -> None:
    with silent_server() as address:
        result = run(*to_servers(command, address), *PATIENT)
    assert (result.exit_code, result.stderr) == (130, "")


def test_ctrl_c_before_a_drop_in_serves_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orbitmq.broker.config.broker_config.load_broker", interrupted)
    assert mqbroker.run([]) == 130


# -- files that cannot be used


FILES = [
    "topic list --key-file {}",
    "nameserver run -c {}",
    "nameserver run --log-file {}",
    "nameserver run --port 0 --set kvConfigPath={}",
    "broker run -c {}",
    "broker run --log-file {}",
    "broker run --store {}",
    "up --port 0 --broker-port 0 --store {}",
    *(f"store {verb} {{}}" for verb in ("info", "ls", "dump", "check", "repair", "rebuild")),
    *(
        f"store {verb} --config {{}}"
        for verb in ("info", "ls", "dump", "check", "repair", "rebuild")
    ),
    *(f"pipeline {verb} {{}}" for verb in ("run", "validate", "explain", "status")),
    "spark dlq billing --after {}",
]
SENTENCE = re.compile(r"^orbitmq: .*\bfile\b.*(: |; ).+$", re.MULTILINE)


@pytest.mark.parametrize("line", FILES)
def test_a_path_through_a_file_is_told_with_cause_and_remedy(line: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(*line.format("file/below").split())
    assert result.exit_code == 1
    assert SENTENCE.search(result.stderr), result.stderr


@pytest.mark.parametrize(
    "line",
    [line for line in FILES if ("store" not in line and "Path" not in line) or "--config" in line],
)
def test_a_directory_in_place_of_a_file_is_told(line: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    result = run(*line.format("folder").split())
    assert result.exit_code in (1, 2)
    assert re.search(r"folder.*is a directory", result.stderr, re.IGNORECASE)


@pytest.mark.parametrize(
    "run_program", [mqbroker.run, mqnamesrv.run], ids=["mqbroker", "mqnamesrv"]
)
def test_a_drop_in_tells_a_file_that_it_cannot_read(
    run_program: Callable[[list[str]], int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    assert run_program(["-c", "folder"]) == 255
    assert (
        "configuration file folder cannot be read: Is a directory; name a file\n"
        in capsys.readouterr().err
    )


def test_a_pipeline_whose_status_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    text = (
        "name: {0}\nsource: {{format: rate}}\nsinks: [{{name: s, format: console}}]\ncheckpoint:"
        " {1}\n"
    )
    (tmp_path / "bad.yaml").write_text(text.format("bad", "/dev/null/x"))
    (tmp_path / "good.yaml").write_text(text.format("good", tmp_path / "checkpoint"))
    result = run("pipeline", "list", "-o", "json")
    assert [row["state"] for row in json.loads(result.stdout)] == ["invalid", "never ran"]


# -- libraries that are not installed

WITHOUT_PACKAGE = """
import json, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == sys.argv[1]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from click.testing import CliRunner
from orbitmq.cli.main import cli

for arguments in json.load(sys.stdin):
    result = CliRunner().invoke(cli, arguments, prog_name="orbitmq")
    print(json.dumps([result.exit_code, result.output, isinstance(result.exception, Exception)]))
"""
PIPELINE = """\
name: orders
source: {format: rocketmq, options: {nameServer: "127.0.0.1:1", subscribe: orders, startingOffsets: earliest}}
sinks: [{name: s, format: console}]
checkpoint: checkpoint
"""
INSTALL = "pip install 'orbitmq[spark]'"
IN_CHECKOUT = "or in a checkout: pip install '.[spark]'"
NEEDS_NO_SPARK = {"pipeline list", "pipeline show", "pipeline validate"}


@pytest.mark.parametrize("package", ["pyspark", "pyarrow", "yaml"])
def test_a_command_that_needs_spark_says_how_to_install_it(package: str, tmp_path: Path) -> None:
    (tmp_path / "orders.yaml").write_text(PIPELINE)
    commands = [
        command
        for command in EXAMPLES
        if command.startswith("pipeline" if package == "yaml" else ("pipeline", "spark"))
    ]
    lines = [
        to_servers(command, NOBODY) if command in ASK_SERVERS else EXAMPLES[command]
        for command in commands
    ]
    child = [sys.executable, "-c", WITHOUT_PACKAGE, package]
    ended = subprocess.run(
        child, input=json.dumps(lines), capture_output=True, text=True, check=True, timeout=WITHIN_S
    )
    for command, line in zip(commands, ended.stdout.splitlines(), strict=True):
        code, output, is_traceback = json.loads(line)
        assert not is_traceback, (command, output)
        if package == "yaml" or command not in NEEDS_NO_SPARK:
            assert code == 1, (command, output)
            assert INSTALL in output, (command, output)
            assert package in output, (command, output)


def test_a_part_of_spark_that_is_missing_is_called_by_the_name_that_users_know(
    tmp_path: Path,
) -> None:
    (tmp_path / "orders.yaml").write_text(PIPELINE)
    child = [sys.executable, "-c", WITHOUT_PACKAGE, "py4j"]
    lines = json.dumps([["pipeline", "run", "orders.yaml"]])
    ended = subprocess.run(
        child, input=lines, capture_output=True, text=True, check=True, timeout=WITHIN_S
    )
    code, output, _ = json.loads(ended.stdout)
    assert (code, "py4j" in output) == (1, False)
    assert "pyspark" in output
    assert INSTALL in output
    assert IN_CHECKOUT in output
