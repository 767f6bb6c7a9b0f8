"""What a message holds for its application, as expressions of Spark on the columns of a row. Knows nothing of where messages go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.message import properties

if TYPE_CHECKING:
    from pyspark.sql import Column


def application_properties(column: Column, *leave_out: str) -> Column:
    """The properties that are the application's, of a map of all."""
    import pyspark.sql.functions as fn

    names = sorted((*properties.OWN, *leave_out))
    return fn.map_filter(column, lambda name, _: ~name.isin(names))


def millis(name: str) -> Column:
    """A time as milliseconds since 1970."""
    import pyspark.sql.functions as fn

    return fn.unix_millis(fn.col(name))
