"""docs/shell.md shows commands that exist, with options that they take."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from orbitmq.cli.main import cli

PAGE = Path(__file__).parents[3] / "docs" / "shell.md"
COMMANDS = re.findall(
    r"^(?:date \| )?orbitmq (.+?)(?:\s+#.*| \| jq.*)?$", PAGE.read_text(), re.MULTILINE
)


@pytest.mark.parametrize("text", COMMANDS)
def test_a_command_of_the_page_can_be_given(text: str) -> None:
    arguments = [argument.replace("order.json", __file__) for argument in shlex.split(text)]
    command: click.Command | None = cli
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), arguments.pop(0))
    assert command is not None
    command.make_context(text, arguments)


def test_the_page_shows_many() -> None:
    assert len(COMMANDS) > 30
