"""Builds the documentation site into build/site: `python tools/build_site.py`.

Installs the packages of the extra `docs` into this environment if they are missing. mkdocs.yml also
names this file as a hook: it adds the pages of the root directory (README.md is the home page) and
turns links from the repository's layout into links of the site. A link to a file that is not a page
becomes plain text.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT: Final = Path(__file__).resolve().parent.parent
ROOT_PAGES: Final = {  # path in the repository: path in the site
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
    "bench/README.md": "benchmarks.md",
}
LINK: Final = re.compile(r"\[(?P<text>[^\]\[]*)\]\((?P<path>[^)#:\s]+)(?P<anchor>#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the root pages, and rewrite the links of all pages."""
    from mkdocs.structure.files import File

    for repository_path, site_path in ROOT_PAGES.items():
        content = (ROOT / repository_path).read_text(encoding="utf-8")
        files.append(
            File.generated(config, site_path, content=site_links(content, repository_path))
        )
    for page in files.documentation_pages():
        if page.src_uri not in ROOT_PAGES.values():
            page.content_string = site_links(page.content_string, f"docs/{page.src_uri}")
    return files


def site_links(text: str, page: str) -> str:
    """Return the text of a page of the repository with links to pages of the site."""
    own_place = _site_path(page) or page

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page), match["path"]))
        found = _site_path(target)
        if found is None:
            return match["text"]
        relative = posixpath.relpath(found, posixpath.dirname(own_place) or ".")
        return f"[{match['text']}]({relative}{match['anchor'] or ''})"

    return LINK.sub(link, text)


def _site_path(repository_path: str) -> str | None:
    """Return where a file of the repository is in the site, or None if it is not a page."""
    if repository_path in ROOT_PAGES:
        return ROOT_PAGES[repository_path]
    if not repository_path.startswith("docs/") or not repository_path.endswith(".md"):
        return None
    return repository_path.removeprefix("docs/")


def missing_packages() -> list[str]:
    """Return the requirements of the extra `docs` that are not installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    missing = []
    for requirement in project["optional-dependencies"]["docs"]:
        try:
            version(re.split(r"[<>=]", requirement)[0])
        except PackageNotFoundError:
            missing.append(requirement)
    return missing


def main() -> int:
    """Install what is missing, then build; every warning is an error."""
    missing = missing_packages()
    if missing:
        print(f"Installing {', '.join(missing)}.", flush=True)
        base = getattr(sys, "_base_executable", sys.executable)  # the environment has no pip
        pip = [base, "-m", "pip", "--python", sys.executable, "install"]
        options = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *options, *missing], check=True)
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    built = subprocess.run(command, cwd=ROOT, env=environment, check=False)
    if built.returncode == 0:
        print("The site is in build/site: open build/site/index.html.")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
