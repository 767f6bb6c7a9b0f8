"""The documentation is true: generated pages match their sources, links lead somewhere, and the
modules and names that the maps of the code mention exist.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.common import errors

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "src" / "orbitmq"
PAGES = sorted((*ROOT.glob("*.md"), ROOT / "bench" / "README.md", *ROOT.glob("docs/**/*.md")))
CONCEPTS = ROOT / "docs" / "concepts"
MAPS = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    CONCEPTS / "storage.md",
    CONCEPTS / "walks.md",
]
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?P<path>[^)#\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(?P<text>.+?) *$", re.MULTILINE)
MODULE = re.compile(r"`([a-z][a-z_/]*/(?:[a-z_]+\.(?:py|md))?)`")  # a file or a folder
STORE_FOLDERS = {"commitlog/", "config/", "timerlog/"}
MEMBER = re.compile(r"`([A-Z][A-Za-z]+)\.([a-z_]+)(?:\(\))?`")


def prose(page: Path) -> str:
    """Return the text of a page without its code blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts make them."""
    found: set[str] = set()
    for match in HEADING.finditer(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match["text"]).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = 0
        while (unique := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(unique)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    for match in LINK.finditer(text):
        if re.match(r"[a-z]+:", match["path"]):
            continue
        target = (page.parent / match["path"]).resolve() if match["path"] else page
        assert target.exists(), f"{match[0]} of {page.name}: there is no {target}"
        if match["anchor"] is not None:
            assert match["anchor"] in anchors(target), f"{match[0]}: no such heading"


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.name)
def test_every_module_that_a_map_names_exists(page: Path) -> None:
    named = set(MODULE.findall(prose(page))) - STORE_FOLDERS
    assert named
    missing = [
        name for name in named if not any((base / name).exists() for base in (SOURCES, ROOT))
    ]
    assert not missing


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.name)
def test_every_member_that_a_map_names_exists(page: Path) -> None:
    sources = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*.py")]
    for kind, member in MEMBER.findall(prose(page)):
        defined = [text for text in sources if re.search(rf"^class {kind}\b", text, re.MULTILINE)]
        assert any(re.search(rf"\b{member}\b", text) for text in defined), f"{kind}.{member}"


def test_the_generated_pages_are_up_to_date() -> None:
    check = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "reference_pages.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stderr


def test_the_site_has_every_page() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/**/*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name in nav or re.match(r"decisions/\d", name), f"{name} is not in the navigation"


def test_the_changelog_has_every_name_that_was_renamed() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for old, new in errors.OLD_NAMES.items():
        assert f"| `{old}` | `{new}` |" in changelog
