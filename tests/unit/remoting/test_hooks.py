"""Hooks of installed packages are found by their entry points."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.common.errors import ConfigurationError
from orbitmq.remoting.hooks import installed_hooks


def install(site: Path, name: str, points: str, module: str = "") -> None:
    """Lay a distribution on disk as an installer would."""
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[orbitmq.rpc_hooks]\n{points}\n")
    (site / f"{name}.py").write_text(module)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


HOOK = """
class Hook:
    def before(self, remote_address, request): ...
    def after(self, remote_address, request, response): ...

def make():
    return Hook()
"""


def test_hooks_are_loaded_in_the_order_of_their_names_as_classes_or_functions(site: Path) -> None:
    install(site, "audit_package", "b-audit = audit_package:Hook\na-trace = audit_package:make", HOOK)
    install(site, "zeal_package", "0-first = zeal_package:Hook", HOOK)
    assert [type(hook).__module__ for hook in installed_hooks()] == ["zeal_package", "audit_package", "audit_package"]


def test_without_such_packages_there_are_no_hooks() -> None:
    assert installed_hooks() == []


@pytest.mark.parametrize(
    ("point", "module"),
    [
        ("bad = broken_package:Hook", "raise OSError('disk on fire')"),
        ("bad = broken_package:Missing", ""),
        ("bad = broken_package:Hook", "class Hook:\n    def __init__(self): raise OSError('no key')"),
        ("bad = no_such_package_anywhere:Hook", ""),
    ],
)
def test_a_hook_that_cannot_be_loaded_stops_the_start_and_is_named(site: Path, point: str, module: str) -> None:
    install(site, "broken_package", point, module)
    with pytest.raises(ConfigurationError, match=r"the hook bad .* cannot be loaded: .*; mend or uninstall the package"):
        installed_hooks()
