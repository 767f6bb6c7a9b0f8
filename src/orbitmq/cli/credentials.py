"""The keys that commands sign their requests with: from options, from the environment, from a file.

Options come first, then the environment; keys before a file in each. The options are kept in the
command's context, so that no command has to hand them on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from orbitmq.access.credentials import Credentials

F = TypeVar("F", bound=Callable[..., Any])

_META: Final = "orbitmq.credentials"
_KEYS: Final = ("access_key", "secret_key")
_FILE: Final = "key_file"
_BLACK_LIST: Final = "Can not update config in black list."  # all that an original says
_UNSIGNED: Final = (
    "username cannot be null",
    "No accessKey is configured",
)  # how servers of 5.x and 4.9 refuse unsigned requests


def credential_options(command: F) -> F:
    """`--access-key`, `--secret-key` and `--key-file`."""
    for flag, variable, metavar, text in (
        (
            "--key-file",
            "ORBITMQ_KEY_FILE",
            "FILE",
            "File with both keys, such as mqadmin's tools.yml.",
        ),
        ("--secret-key", "ORBITMQ_SECRET_KEY", "TEXT", "Secret key that signs requests."),
        (
            "--access-key",
            "ORBITMQ_ACCESS_KEY",
            "TEXT",
            "Access key, for servers with access control.",
        ),
    ):
        command = click.option(
            flag,
            envvar=variable,
            show_envvar=True,
            metavar=metavar,
            help=text,
            expose_value=False,
            callback=_remember,
        )(command)
    return command


def _remember(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value and param.name is not None:
        ctx.meta.setdefault(_META, {})[param.name] = (
            value,
            ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE,
        )


def with_remedy(problem: str) -> str:
    """What went wrong and, where servers do not say it, what to do."""
    if problem.partition(" (code")[0].endswith(_BLACK_LIST):
        return f"{problem}: it is read at start only; set it in the configuration file and restart"
    if not any(text in problem for text in _UNSIGNED):
        return problem
    options = "--access-key and --secret-key, or --key-file"
    return (
        f"{problem}; this server asks who you are: give {options}, or set ORBITMQ_ACCESS_KEY and"
        " ORBITMQ_SECRET_KEY"
    )


def chosen_credentials() -> Credentials | None:
    """The keys of the command that runs; None when it was given none."""
    from orbitmq.access.credentials import Credentials

    ctx = click.get_current_context(silent=True)
    given: dict[str, tuple[str, bool]] = {} if ctx is None else ctx.meta.get(_META, {})
    for from_options in (True, False):
        found = {
            name: value
            for name, (value, is_option) in given.items()
            if is_option or not from_options
        }
        keys = [found[name] for name in _KEYS if name in found]
        if len(keys) == len(_KEYS):
            return Credentials(*keys)
        if _FILE in found:
            return Credentials.from_file(Path(found[_FILE]))
        if keys and not from_options:
            raise click.UsageError(
                "one key is missing: requests are signed with --access-key and --secret-key"
                " together"
            )
    return None
