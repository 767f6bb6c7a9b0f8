"""The `orbitmq` command as a whole: help, version, exit codes, errors in one message."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from orbitmq import kernels
from orbitmq.cli.main import NOUNS, cli
from orbitmq.common.errors import RemoteUnavailableError
from orbitmq.version import __version__


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner(env=environment).invoke(cli, list(arguments), prog_name="orbitmq")


def test_the_version_names_release_kernels_and_python() -> None:
    result = run("--version")
    assert result.exit_code == 0
    python = ".".join(str(part) for part in sys.version_info[:3])
    assert (
        result.stdout
        == f"orbitmq {__version__} (Apache RocketMQ 5.5.0 protocol, kernels {kernels.mode()},"
        f" Python {python})\n"
    )


def test_the_version_loads_nothing_that_is_slow() -> None:
    program = (
        "import sys; from orbitmq.cli.main import cli; cli(['--version'], standalone_mode=False);"
        " print(sorted(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    for slow in (
        "asyncio",
        "ssl",
        "rich",
        "yaml",
        "cryptography",
        "orbitmq.common.config",
        "orbitmq.remoting.client",
    ):
        assert f"'{slow}'" not in loaded


def commands() -> list[list[str]]:
    import importlib

    found: list[list[str]] = [[]]
    for noun in NOUNS:
        group = importlib.import_module(f"orbitmq.cli.{noun}").group
        found += [
            [noun],
            *([noun, verb] for verb in getattr(group, "commands", ())),
        ]  # some nouns are a command themselves
    return found


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_and_every_verb_an_example(command: list[str]) -> None:
    result = run(*command, "--help")
    assert result.exit_code == 0
    if len(command) == 2:
        assert re.search(rf"Examples?:\n.*orbitmq {' '.join(command)}", result.stdout, re.DOTALL), (
            result.stdout
        )


def test_every_noun_says_the_same_in_both_helps() -> None:
    for noun, summary in NOUNS.items():
        assert summary in run("--help").stdout
        assert summary in run(noun, "--help").stdout


def test_a_wrong_command_line_is_2() -> None:
    assert run("topic", "rout").exit_code == 2
    assert run("nonsense").exit_code == 2
    assert run("topic", "route").exit_code == 2
    result = run("nameserver", "run", "--set", "listenPort")
    assert result.exit_code == 2
    assert "'listenPort' is not of the form KEY=VALUE" in result.stderr


def test_a_server_that_cannot_be_reached_is_3_and_one_message() -> None:
    result = run("cluster", "list", "-n", "127.0.0.1:1")
    assert result.exit_code == 3
    assert re.fullmatch(
        r"orbitmq: no name server answers: cannot connect to 127\.0\.0\.1:1: .*; is a server"
        r" running there\?\n",
        result.stderr,
    )


def test_the_environment_names_the_name_servers() -> None:
    assert "127.0.0.1:2" in run("cluster", "list", NAMESRV_ADDR="127.0.0.1:2").stderr


def test_an_address_that_is_none_is_1() -> None:
    result = run("cluster", "list", "-n", "nowhere")
    assert result.exit_code == 1
    assert result.stderr.startswith("orbitmq: 'nowhere' is not an address of the form host:port")


def test_debug_shows_the_error_itself() -> None:
    result = run("--debug", "cluster", "list", "-n", "127.0.0.1:1")
    assert isinstance(result.exception, RemoteUnavailableError)
