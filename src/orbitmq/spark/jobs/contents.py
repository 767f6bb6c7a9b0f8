"""What a message holds for its application, as expressions of Spark on the columns of a row. Knows nothing of where messages go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.message import properties

if TYPE_CHECKING:
    from pyspark.sql import Column

# What brokers and clients write beside what they let no application write.
_WRITTEN: Final = (
    *(properties.INNER_NUM, properties.INNER_BASE, properties.TRANSACTION_ID, properties.TRANSACTION_CHECK_TIMES),
    *(properties.CHECK_IMMUNITY_TIME_S, properties.FORWARD_QUEUE_ID, properties.REDIRECT),
)
OWN_PROPERTIES: Final = frozenset((*properties.RESERVED, *_WRITTEN))


def application_properties(column: Column, *leave_out: str) -> Column:
    """The properties that are the application's, of a map of all."""
    import pyspark.sql.functions as fn

    names = sorted((*OWN_PROPERTIES, *leave_out))
    return fn.map_filter(column, lambda name, _: ~name.isin(names))


def millis(name: str) -> Column:
    """A time as milliseconds since 1970."""
    import pyspark.sql.functions as fn

    return fn.unix_millis(fn.col(name))
