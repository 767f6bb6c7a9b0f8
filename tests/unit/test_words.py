"""The words of the source: what docstrings may not say, how errors are called, and that one public
class name stands for one thing.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import orbitmq

SOURCE: Final = Path(orbitmq.__file__).parent
# Riddles: a docstring that points elsewhere, or has nothing but numbers of request codes.
RIDDLE: Final = re.compile(r"See above\.?|[\d, and]+\.?")
# The blocking faces have the names of what they wrap.
FACES: Final = "blocking/"
# A plug-in's result of a send and the client's: both are what documentation shows.
SHARED: Final = {"SendResult"}
# Signals to the caller that are no errors, by the names that people know.
SIGNALS: Final = {"ConsumeLater", "StoppedEarly"}


@cache
def modules() -> list[tuple[str, ast.Module]]:
    return [
        (str(path.relative_to(SOURCE)), ast.parse(path.read_text()))
        for path in sorted(SOURCE.rglob("*.py"))
    ]


def documented(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_no_docstring_is_a_riddle() -> None:
    riddles = [
        f"{name}: {text}"
        for name, tree in modules()
        for node in documented(tree)
        if (text := ast.get_docstring(node)) is not None and RIDDLE.fullmatch(text)  # type: ignore[arg-type]
    ]
    assert riddles == []


def test_errors_are_called_errors() -> None:
    raised = {"Exception", "BaseException", "OrbitError"}
    others = [
        f"{name}: {node.name}"
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and any(
            isinstance(base, ast.Name) and (base.id in raised or base.id.endswith("Error"))
            for base in node.bases
        )
        and not node.name.endswith("Error")
        and not node.name.startswith("_")
        and node.name not in SIGNALS
    ]
    assert others == []


def test_a_public_class_name_stands_for_one_thing() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for name, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not (
                node.name.startswith("_") or name.startswith(FACES)
            ):
                places[node.name].append(name)
    assert {
        name: found for name, found in places.items() if len(found) > 1 and name not in SHARED
    } == {}
