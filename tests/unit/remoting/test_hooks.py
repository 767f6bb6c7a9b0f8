"""Hooks of installed packages are found by their entry points, and their failures are logged by
name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.common.errors import ConfigurationError, RequestRefusedError
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.remoting.hooks import RPC_HOOKS, installed_hooks
from support.common.installed_packages import install, site_packages

GROUP = "[orbitmq.rpc_hooks]\n"
HOOK = """
class Hook:
    def before(self, remote_address, request): ...
    def after(self, remote_address, request, response): ...

def make():
    return Hook()
"""
REQUEST = RemotingCommand(1)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    with site_packages(tmp_path) as site:
        yield site


def test_hooks_are_loaded_in_the_order_of_their_names_as_classes_or_functions(site: Path) -> None:
    install(
        site,
        "audit_package",
        GROUP + "b-audit = audit_package:Hook\na-trace = audit_package:make",
        HOOK,
    )
    install(site, "zeal_package", GROUP + "0-first = zeal_package:Hook", HOOK)
    hooks = RPC_HOOKS.installed()
    assert [hook.label for hook in hooks] == [
        "RPC hook 0-first",
        "RPC hook a-trace",
        "RPC hook b-audit",
    ]
    assert [type(hook.part).__module__ for hook in hooks] == [
        "zeal_package",
        "audit_package",
        "audit_package",
    ]
    assert len(installed_hooks()) == 3


def test_without_such_packages_there_are_no_hooks() -> None:
    assert installed_hooks() == []


@pytest.mark.parametrize(
    ("point", "module", "reason"),
    [
        ("bad = broken_package:Hook", "raise OSError('disk on fire')", "disk on fire"),
        ("bad = broken_package:Missing", "", "AttributeError: .*Missing.*"),
        (
            "bad = broken_package:Hook",
            "class Hook:\n    def __init__(self): raise KeyError('no key')",
            "KeyError: 'no key'",
        ),
        (
            "bad = no_such_package_anywhere:Hook",
            "",
            "ModuleNotFoundError: .*no_such_package_anywhere.*",
        ),
        (
            "bad = broken_package:dict",
            "from builtins import dict",
            r"it yields {}, which has no before and no after",
        ),
    ],
)
def test_a_hook_that_cannot_be_loaded_stops_the_start_and_is_named(
    site: Path, point: str, module: str, reason: str
) -> None:
    install(site, "broken_package", GROUP + point, module)
    expected = (
        rf"the RPC hook bad \(.*\) of group orbitmq.rpc_hooks cannot be loaded: {reason}; fix or"
        r" uninstall the package"
    )
    with pytest.raises(ConfigurationError, match=expected):
        installed_hooks()


RAISING = """
from orbitmq.common.errors import RequestRefusedError

class Hook:
    def before(self, remote_address, request):
        raise {problem}

    def after(self, remote_address, request, response):
        raise {problem}
"""


def test_what_a_hook_raises_by_mistake_is_answered_with_its_name_before_and_logged_after(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    install(
        site,
        "broken_package",
        GROUP + "bad = broken_package:Hook",
        RAISING.format(problem="ValueError('one and one')"),
    )
    (hook,) = installed_hooks()
    with (
        caplog.at_level(logging.CRITICAL),
        pytest.raises(
            RequestRefusedError,
            match=(
                r"^the RPC hook bad failed, see the server's log [^:]*; fix or uninstall the"
                r" package that offers it"
            ),
        ) as refused,
    ):
        hook.before("127.0.0.1:1", REQUEST)
    assert refused.value.code == ResponseCode.SYSTEM_ERROR
    with caplog.at_level(logging.ERROR):
        hook.after("127.0.0.1:1", REQUEST, REQUEST.reply(0))
    assert ["RPC hook bad" in record.getMessage() for record in caplog.records] == [True]


def test_what_a_hook_refuses_is_refused_before_and_after(site: Path) -> None:
    install(
        site,
        "strict_package",
        GROUP + "strict = strict_package:Hook",
        RAISING.format(problem="RequestRefusedError(16, 'no; ask me')"),
    )
    (hook,) = installed_hooks()
    with pytest.raises(RequestRefusedError, match="no; ask me"):
        hook.before("127.0.0.1:1", REQUEST)
    with pytest.raises(RequestRefusedError, match="no; ask me"):
        hook.after("127.0.0.1:1", REQUEST, REQUEST.reply(0))
