"""Every command of `orbitmq` with a command line that can be given: the first example of its own
help.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from orbitmq.cli.main import cli


def leaves(
    command: click.Command = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """The commands below `command` that do something, with their names."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


def example(path: tuple[str, ...], command: click.Command) -> list[str]:
    """The arguments of the first example in the help of a command."""
    found = re.search(
        rf"^ *orbitmq ({' '.join(path)}\b.*?)(?: {{2,}}.*| #.*)?$", command.help or "", re.MULTILINE
    )
    assert found is not None, f"orbitmq {' '.join(path)} has no example"
    return shlex.split(found[1])


def _given(text: str) -> str:
    """An argument of an example for a machine on which nothing of what it names is there, and no
    address leads off it.
    """
    return (
        re.sub(r"10\.0\.0\.\d+:\d+", NOBODY, text)
        .replace("/data/", "")
        .replace("/var/rocketmq/", "")
    )


NOBODY = "127.0.0.1:1"
EXAMPLES = {
    " ".join(path): [_given(text) for text in example(path, command)] for path, command in leaves()
}
ASK_SERVERS = [
    " ".join(path)
    for path, command in leaves()
    if any(option.name == "timeout_ms" for option in command.params)
]
RUN_SERVERS = ["broker run", "nameserver run", "up"]
