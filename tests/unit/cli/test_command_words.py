"""The words of the command line: one verb for one act, help texts of one line, and old spellings
that still work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.main import cli

VERBS = {"list", "show", "create", "update", "delete", "reset", "send", "tail"}
REASONS = {
    "run": "starts a process that stays",
    "up": "is a noun and its only verb",
    "config": "shows values and, with --set, changes them, as mqadmin has two commands for",
    "wipe-write-perm": "is mqadmin's wipeWritePerm",
    "add-write-perm": "is mqadmin's addWritePerm",
    "explain": "says why, where show says what",
    "redrive": "sends dead letters back; the word of the field",
    "find": "searches by key and time, where list would show everything",
    "validate": "reads files and changes nothing",
    "cancel": "ends what has not happened yet, where delete removes what exists",
    "route": "is mqadmin's topicRoute",
    "stats": "is mqadmin's topicStatus",
    "resolve": "commits or rolls back",
    "resume": "restarts checks",
    "archive": "is a Spark job",
    "replay": "is a Spark job",
    "dlq": "is a Spark job",
    "audit": "is a Spark job",
    "report": "is a Spark job",
    "doctor": "checks an installation",
    "info": "shows a store without a broker, whose commands have words of their own",
    "dump": "as info",
    "check": "as info",
    "repair": "as info",
    "rebuild": "as info",
}
HELP_VERBS = re.compile(
    "(Archive|Build|Cancel|Check|Commit|Compare|Create|Delete|Explain|Find|List|Look|Manage"
    "|Print|Rebuild|Remove|Repair|Replay|Report|Reset|Restart|Restore|Run|Send|Show|Update)[ ,]"
)
OLD_SPELLINGS = {
    "access user ls": "access user list",
    "access acl ls": "access acl list",
    "broker status": "broker show",
    "dlq ls": "dlq list",
    "dlq peek": "dlq show",
    "kv get": "kv show",
    "kv put": "kv update",
    "message get": "message show",
    "pipeline status": "pipeline show",
    "store ls": "store list",
    "timer ls": "timer list",
    "tx ls": "tx list",
}


def walk(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every visible command below one, with its words."""
    if not isinstance(command, click.Group):
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        if not found.hidden:
            yield (*path, name), found
            yield from walk(found, (*path, name))


COMMANDS = {" ".join(path): command for path, command in walk(cli)}
LEAVES = [name for name, command in COMMANDS.items() if not isinstance(command, click.Group)]


def find(words: str) -> click.Command | None:
    command: click.Command | None = cli
    for word in words.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    return command


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), prog_name="orbitmq")


@pytest.mark.parametrize("name", LEAVES)
def test_every_verb_is_one_of_the_list_or_has_a_reason(name: str) -> None:
    assert name.split()[-1] in VERBS | REASONS.keys()


def test_no_reason_is_left_over() -> None:
    assert {name.split()[-1] for name in LEAVES} >= REASONS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_begins_with_one_line_that_begins_with_a_verb(name: str) -> None:
    summary = (COMMANDS[name].help or "").split("\n\n")[0]
    assert "\n" not in summary.strip()
    assert HELP_VERBS.match(summary)
    assert summary.endswith(".")
    assert len(summary) <= 90


@pytest.mark.parametrize("name", LEAVES)
def test_every_option_has_a_help_that_ends_its_sentence(name: str) -> None:
    for option in COMMANDS[name].params:
        if isinstance(option, click.Option):
            text = option.help or ""
            assert text.endswith((".", "…", "]", ")")), option.opts
            assert "\n" not in text, option.opts
            assert "may be given again" not in text, option.opts


@pytest.mark.parametrize(("old", "new"), OLD_SPELLINGS.items())
def test_an_old_spelling_is_the_command_of_today(old: str, new: str) -> None:
    assert find(old) is find(new)
    assert old not in COMMANDS
    assert run(*old.split(), "--help").exit_code == 0


def test_every_old_spelling_is_in_the_table() -> None:
    groups = {
        name: command for name, command in COMMANDS.items() if isinstance(command, click.Group)
    }
    known = {
        f"{name} {old}": f"{name} {new}"
        for name, command in groups.items()
        if isinstance(command, CommandGroup)
        for old, new in command.old_names.items()
    }
    assert known == OLD_SPELLINGS


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("brokr run", "No such command 'brokr'. Did you mean 'broker'?"),
        ("topic lst", "No such command 'lst'. Did you mean 'list'?"),
        ("access user creat", "No such command 'creat'. Did you mean 'create'?"),
        ("kv xyzzy", "No such command 'xyzzy'. There are "),
    ],
)
def test_a_misspelt_command_gets_the_nearest_name(line: str, hint: str) -> None:
    result = run(*line.split())
    assert result.exit_code == 2
    assert hint in result.stderr
