"""The commands that ask name servers, against one that runs, with a broker registered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from orbitmq.cli.main import cli
from support.nameserver.thread import RunningNameServer

NOBODY = "127.0.0.1:1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with RunningNameServer(tmp_path, broker_address="10.0.0.1:10911") as running:
        yield running.address


@pytest.fixture
def empty_server(tmp_path: Path) -> Iterator[str]:
    with RunningNameServer(tmp_path) as running:
        yield running.address


def run(name_servers: str, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "-n", name_servers])


def lines(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


def test_cluster_list_shows_every_broker(server: str) -> None:
    assert lines(run(server, "cluster", "list")) == [
        ["CLUSTER", "BROKER", "ID", "ROLE", "ADDRESS"],
        ["c1", "broker-a", "0", "master", "10.0.0.1:10911"],
    ]


def test_topic_list_shows_all_topics_or_those_of_a_cluster(server: str) -> None:
    assert lines(run(server, "topic", "list")) == [["TOPIC"], ["Other"], ["TopicTest"]]
    assert (
        yaml.safe_load(run(server, "topic", "list", "--cluster", "c2", "-o", "yaml").stdout) == []
    )


def test_topic_list_says_which_switch_forbids_it(server: str) -> None:
    assert (
        run(
            server,
            "nameserver",
            "config",
            "--set",
            "enableTopicList=false",
            "--set",
            "enableAllTopicList=false",
        ).exit_code
        == 0
    )
    for arguments, switch in (([], "enableAllTopicList"), (["--cluster", "c1"], "enableTopicList")):
        result = run(server, "topic", "list", *arguments)
        assert result.exit_code == 1
        assert (
            result.stderr
            == f"orbitmq: the name server does not list topics: set {switch}=true in its"
            " configuration\n"
        )


def test_topic_route_shows_the_queues(server: str) -> None:
    result = run(server, "topic", "route", "TopicTest", "-o", "json")
    assert json.loads(result.stdout) == [
        {
            "broker": "broker-a",
            "cluster": "c1",
            "read_queues": 4,
            "write_queues": 8,
            "permission": "RW",
            "addresses": ["0=10.0.0.1:10911"],
        }
    ]


def test_a_route_that_is_missing_says_why(server: str) -> None:
    result = run(server, "topic", "route", "Nope")
    assert result.exit_code == 1
    assert (
        result.stderr
        == "orbitmq: no route to topic Nope: none of the registered brokers (broker-a) has it; "
        "create it, or check its spelling with: orbitmq topic list\n"
    )


def test_a_route_without_any_broker_says_so(empty_server: str) -> None:
    result = run(empty_server, "topic", "route", "Nope")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "orbitmq: no route to topic Nope: no broker is registered; start one"
    )


def test_kv_values_are_put_got_listed_and_deleted(empty_server: str) -> None:
    assert run(empty_server, "kv", "update", "NS", "k", "a=1;ä").exit_code == 0
    assert run(empty_server, "kv", "show", "NS", "k").stdout == "a=1;ä\n"
    assert json.loads(run(empty_server, "kv", "list", "NS", "-o", "json").stdout) == [
        {"key": "k", "value": "a=1;ä"}
    ]
    assert run(empty_server, "kv", "delete", "NS", "k").exit_code == 0
    missing = run(empty_server, "kv", "show", "NS", "k")
    assert (missing.exit_code, missing.stderr) == (
        1,
        "orbitmq: there is no key k in namespace NS\n",
    )
    missing = run(empty_server, "kv", "list", "NOPE")
    assert (missing.exit_code, missing.stderr) == (1, "orbitmq: there is no namespace NOPE\n")


def test_the_configuration_is_shown_and_changed(empty_server: str, tmp_path: Path) -> None:
    result = run(empty_server, "nameserver", "config", "--set", "waitSecondsForService=7")
    assert (result.exit_code, result.stderr) == (0, "updated waitSecondsForService\n")
    shown = {
        row["key"]: row["value"]
        for row in json.loads(run(empty_server, "nameserver", "config", "-o", "json").stdout)
    }
    assert shown["waitSecondsForService"] == "7"
    assert "waitSecondsForService=7\n" in (tmp_path / "namesrv.properties").read_text()


def test_a_change_that_is_refused_says_who_refused_it_and_why(empty_server: str) -> None:
    result = run(empty_server, "nameserver", "config", "--set", "kvConfigPath=/x")
    assert result.exit_code == 1
    assert (
        result.stderr
        == f"orbitmq: {empty_server} refused: Can not update config in black list. (code 16,"
        " NO_PERMISSION): it is read at start only; set it in the configuration file and restart\n"
    )


def test_a_change_that_reaches_some_name_servers_says_which(empty_server: str) -> None:
    result = run(f"{empty_server};{NOBODY}", "kv", "update", "NS", "k", "v")
    assert result.exit_code == 3
    assert result.stderr.startswith(f"orbitmq: cannot connect to {NOBODY}: ")
    assert result.stderr.endswith(f"; done at {empty_server}\n")


def test_a_question_is_answered_by_the_name_server_that_can(empty_server: str) -> None:
    for name_servers in (f"{empty_server};{NOBODY}", f"{NOBODY};{empty_server}"):
        assert run(name_servers, "cluster", "list").exit_code == 0


def test_the_write_permission_of_a_broker_is_taken_and_given_back(server: str) -> None:
    def permission() -> str:
        (row,) = json.loads(run(server, "topic", "route", "TopicTest", "-o", "json").stdout)
        return str(row["permission"])

    assert json.loads(
        run(server, "broker", "wipe-write-perm", "broker-a", "-o", "json").stdout
    ) == [{"name_server": server, "topics_changed": 2}]
    assert permission() == "R-"
    assert lines(run(server, "broker", "add-write-perm", "broker-a"))[1] == [server, "2"]
    assert permission() == "RW"


def test_a_broker_that_nobody_knows_is_an_error(server: str) -> None:
    result = run(server, "broker", "wipe-write-perm", "nope")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "orbitmq: nothing was changed: no name server knows queues of a broker nope;"
    )
