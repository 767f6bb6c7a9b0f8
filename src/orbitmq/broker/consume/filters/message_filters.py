"""Filters by expression, which the store calls entry by entry and record by record
(`store.reads.MessageFilter`).

Bits in a queue's ext file can only rule a message out; that it matches is decided by its own
properties.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.metadata.bloom import has_bits
from orbitmq.broker.metadata.consumer_filters import ConsumerFilter
from orbitmq.message.properties import RETRY_TOPIC
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.sql.expression import Expression
from orbitmq.protocol.bodies.consumer_filters import FilterData
from orbitmq.store.consume_queue_ext import ExtUnit


class ExpressionFilter:
    """Matches messages for which an expression is true. `data` is the group's filter, if ext files
    have bits for it.
    """

    tags_codes: Final = None
    passes_bare_entries: Final = True

    def __init__(self, expression: Expression, data: FilterData | None = None) -> None:
        self.matches_record = expression.matches_record
        self.record_cost = expression.cost
        self._data = data

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        data = self._data
        if (
            unit is None
            or data is None
            or data.bloom is None
            or unit.store_time_ms <= data.born_time_ms
        ):
            return True  # the message was not matched against this filter
        if 8 * len(unit.bits) != data.bloom.bit_count:
            return True
        return has_bits(unit.bits, data.bloom.positions)


class RetryFilter:
    """Matches redelivered messages by the group's filter for their original topic; all if it has
    none.

    `record_cost` is the highest cost of these filters.
    """

    passes_bare_entries: Final = True

    def __init__(
        self,
        tags_codes: frozenset[int] | None,
        group: str,
        find: Callable[[str, str], ConsumerFilter | None],
        record_cost: int,
    ) -> None:
        self.tags_codes = tags_codes
        self.record_cost = record_cost
        self._group = group
        self._find = find

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        return True

    def matches_record(self, record: RecordCursor) -> bool:
        known = self._find(record.property(RETRY_TOPIC) or "", self._group)
        return known is None or known.expression.matches_record(record)
