"""Which messages a pull gets by an expression: what the store asks, entry by entry and record by record (`store.reads.MessageFilter`).

Bits in a queue's ext file may say that a message is not wanted; nothing but its own properties says that it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.broker.filters.bloom import has_bits
from orbitmq.broker.filters.consumer_filters import ConsumerFilter
from orbitmq.message.properties import RETRY_TOPIC
from orbitmq.message.record_read import RecordCursor
from orbitmq.message.sql.expression import Expression
from orbitmq.protocol.bodies.consumer_filters import FilterData
from orbitmq.store.consume_queue_ext import ExtUnit


class ExpressionFilter:
    """The messages of which an expression is true. `data` is the group's, if it is known by the bits of ext files."""

    tags_codes: Final = None
    passes_bare_entries: Final = True

    def __init__(self, expression: Expression, data: FilterData | None = None) -> None:
        self.matches_record = expression.matches_record
        self.record_cost = expression.cost
        self._data = data

    def matches_entry(self, tags_code: int | None, unit: ExtUnit | None) -> bool:
        data = self._data
        if unit is None or data is None or data.bloom is None or unit.store_time_ms <= data.born_time_ms:
            return True  # nobody looked at the message with this filter
        if 8 * len(unit.bits) != data.bloom.bit_count:
            return True
        return has_bits(unit.bits, data.bloom.positions)


class RetryFilter:
    """Messages that come again, by the filter that their group has for the topic that they were in first; all, where it has none.

    `record_cost` is the most that one of these filters costs.
    """

    passes_bare_entries: Final = True

    def __init__(
        self, tags_codes: frozenset[int] | None, group: str, find: Callable[[str, str], ConsumerFilter | None], record_cost: int
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
