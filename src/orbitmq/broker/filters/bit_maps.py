"""The bits of a message for its queue's ext file: those of each group whose filter it passes."""

from __future__ import annotations

from typing import Protocol

from orbitmq.broker.filters.consumer_filters import ConsumerFilters
from orbitmq.message.record_read import RecordCursor


class BitMapSettings(Protocol):
    """What of the configuration bits depend on."""

    @property
    def enable_calc_filter_bit_map(self) -> bool: ...


class BitMaps:
    """Asked by dispatch, for each message of a queue that has ext files."""

    def __init__(self, settings: BitMapSettings, filters: ConsumerFilters) -> None:
        self._settings = settings
        self._filters = filters

    def of(self, topic: str, record: RecordCursor) -> bytes:
        """The map of a record; none when nobody filters its topic, or none are wanted."""
        filters = self._filters.of_topic(topic)
        if not filters or not self._settings.enable_calc_filter_bit_map:
            return b""
        passed = (each.data.bloom for each in filters if each.expression.matches(record.property))
        return self._filters.bloom.map_of(position for bits in passed if bits is not None for position in bits.positions)
