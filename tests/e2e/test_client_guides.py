"""The guides docs/client.md, docs/migrating-from-java.md and docs/transactions.md: every Python
example on them runs, prints what stands below it, and logs no warning.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from orbitmq.testing import LocalCluster

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLE = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(\n```text\n(?P<output>.*?)^```$)?", re.DOTALL | re.MULTILINE
)
NAME_SERVER = "127.0.0.1:9876"  # of all examples


@pytest.mark.parametrize(
    ("name", "count_min"),
    [("client.md", 8), ("migrating-from-java.md", 1), ("transactions.md", 1)],
)
def test_the_examples_of_a_guide_print_what_it_says(
    name: str, count_min: int, caplog: pytest.LogCaptureFixture
) -> None:
    page = (DOCS / name).read_text()
    examples = list(EXAMPLE.finditer(page))
    assert len(examples) >= count_min
    with LocalCluster() as mq:
        for example in examples:
            line = page.count("\n", 0, example.start()) + 2
            code = compile(
                "\n" * (line - 1) + example["code"].replace(NAME_SERVER, mq.name_server),
                str(DOCS / name),
                "exec",
            )
            with redirect_stdout(io.StringIO()) as told:
                exec(code, {"__name__": "__main__"})
            assert told.getvalue() == (example["output"] or ""), f"the example at line {line}"
            logged = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
            assert logged == [], f"the example at line {line}"  # which would be on the terminal


@pytest.mark.parametrize("name", ["client.md", "migrating-from-java.md"])
def test_what_a_guide_links_to_is_there(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (DOCS / name).read_text()):
        assert (DOCS / target).exists(), target
