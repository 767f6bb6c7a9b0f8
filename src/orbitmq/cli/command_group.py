"""A group of commands that knows old spellings of its commands, and suggests the nearest name.

Old spellings work as ever and are shown nowhere.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import click


class CommandGroup(click.Group):
    """`old_names` maps each old spelling to the command of today."""

    def __init__(
        self, *args: Any, old_names: Mapping[str, str] | None = None, **extra: Any
    ) -> None:
        super().__init__(*args, **extra)
        self.old_names = dict(old_names or {})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.old_names.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        is_unknown = self.get_command(ctx, name) is None and not name.startswith("-")
        if is_unknown and not ctx.resilient_parsing:
            names = self.list_commands(ctx)
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(names)}."
            ctx.fail(f"No such command {name!r}. {hint}")
        return super().resolve_command(ctx, args)
