"""Finds the columns of the source that a pipeline uses: Spark does not prune columns of a Python
source, and each one read costs time.

A column is used if any node of Spark's optimized plan refers to it, or if it is part of the result.
Of a node with several inputs, such as a union, which matches columns by position, all inputs count
as used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def used_columns(result: DataFrame, known: Collection[str]) -> list[str]:
    """Return those of `known`, in their order, that `result` depends on; none if rows are only
    counted.
    """
    state = result.sparkSession._jsparkSession.sessionState()
    plan = state.optimizer().execute(result._jdf.queryExecution().analyzed())
    used = set(_attributes(plan.outputSet()))
    names: dict[int, str] = {}
    for node in _nodes(plan):
        inputs = list(_each(node.children()))
        if inputs:
            used.update(_attributes(node.references()))
        else:
            names.update(_attributes(node.outputSet()))
        if len(inputs) > 1:
            used.update(*(_attributes(part.outputSet()) for part in inputs))
    found = {name for attribute, name in names.items() if attribute in used}
    return [name for name in known if name in found]


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for part in (*_each(plan.children()), *_each(plan.subqueries())):
        yield from _nodes(part)


def _attributes(found: Any) -> dict[int, str]:
    """Return names by the expression ids that distinguish columns of the same name."""
    return {attribute.exprId().id(): attribute.name() for attribute in _each(found.toSeq())}


def _each(sequence: Any) -> Iterator[Any]:
    """Iterate over a Scala sequence."""
    return (sequence.apply(number) for number in range(sequence.size()))
