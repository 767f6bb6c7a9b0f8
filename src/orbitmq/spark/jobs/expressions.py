"""Spark expressions on the columns of a message that several jobs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.message import properties

if TYPE_CHECKING:
    from pyspark.sql import Column


def application_properties(column: Column, *leave_out: str) -> Column:
    """Filter a map of properties down to those of the application, without `leave_out`."""
    import pyspark.sql.functions as fn

    names = sorted((*properties.OWN, *leave_out))
    return fn.map_filter(column, lambda name, _: ~name.isin(names))


def millis(name: str) -> Column:
    """Return a timestamp column as milliseconds since 1970."""
    import pyspark.sql.functions as fn

    return fn.unix_millis(fn.col(name))
