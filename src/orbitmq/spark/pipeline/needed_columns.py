"""Which columns of its source a pipeline uses at all: Spark leaves none out for a source in Python, and each that is read costs.

A column is used when any part of Spark's optimized plan refers to it, or when it is part of the result. Where a part has several inputs
(unions go by position) everything that goes into it counts as used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def used_columns(result: DataFrame, known: Collection[str]) -> list[str]:
    """Those of `known`, in their order, that `result` is made of; none when rows are only counted."""
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
    """Names by what Spark tells columns of one name apart with."""
    return {attribute.exprId().id(): attribute.name() for attribute in _each(found.toSeq())}


def _each(sequence: Any) -> Iterator[Any]:
    """The members of a sequence of Scala's."""
    return (sequence.apply(number) for number in range(sequence.size()))
