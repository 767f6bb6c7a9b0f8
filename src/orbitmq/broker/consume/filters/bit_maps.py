"""The filter bit map of a message for its queue's ext file: the bits of each group whose filter it
passes.
"""

from __future__ import annotations

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.consumer_filters import ConsumerFilters
from orbitmq.message.record_read import RecordCursor
from orbitmq.store.config import FILTER_STEP_WORK, FILTER_WORK_MAX


class BitMaps:
    """Computes bit maps; called by dispatch for each message of a queue that has ext files."""

    def __init__(self, settings: BrokerConfig, filters: ConsumerFilters) -> None:
        self._settings = settings
        self._filters = filters

    def of(self, topic: str, record: RecordCursor) -> bytes:
        """Return the bit map of a record; none if no group filters its topic, or bit maps are off.

        If there are too many filters for one message, the bits of the rest are set: pulls then
        match the record itself.
        """
        filters = self._filters.of_topic(topic)
        if not filters or not self._settings.enable_calc_filter_bit_map:
            return b""
        work, positions = 0, list[int]()
        for each in filters:
            work += each.expression.cost * (FILTER_STEP_WORK + record.properties_size)
            if each.data.bloom is not None and (
                work > FILTER_WORK_MAX or each.expression.matches_record(record)
            ):
                positions += each.data.bloom.positions
        return self._filters.bloom.map_of(positions)
