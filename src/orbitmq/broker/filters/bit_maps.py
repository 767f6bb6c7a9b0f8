"""The bits of a message for its queue's ext file: those of each group whose filter it passes."""

from __future__ import annotations

from typing import Protocol

from orbitmq.broker.filters.consumer_filters import ConsumerFilters
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.config import FILTER_STEP_WORK, FILTER_WORK_MAX


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
        """The map of a record; none when nobody filters its topic, or none are wanted.

        Where filters are more than is reasonable for one message, the bits of the rest are set: pulls look at the record itself then.
        """
        filters = self._filters.of_topic(topic)
        if not filters or not self._settings.enable_calc_filter_bit_map:
            return b""
        work, positions = 0, list[int]()
        for each in filters:
            work += each.expression.cost * (FILTER_STEP_WORK + record.properties_size)
            if each.data.bloom is not None and (work > FILTER_WORK_MAX or each.expression.matches_record(record)):
                positions += each.data.bloom.positions
        return self._filters.bloom.map_of(positions)
