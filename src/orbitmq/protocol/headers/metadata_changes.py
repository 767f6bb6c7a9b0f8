"""Headers of GET_METADATA_CHANGES, OrbitMQ's own request of a slave to its master."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.protocol.headers.base import Header, Int64, wire_fields

_POSITION: Final = "Position"


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetadataChangesRequestHeader(Header):
    """Request header of GET_METADATA_CHANGES: return what changed in the tables after these
    positions, which count only if they are of `source`. A table without one is returned whole.
    """

    source: str | None = None
    topics_position: str | None = None
    groups_position: str | None = None
    consumer_offsets_position: str | None = None
    request_modes_position: str | None = None
    consumer_filters_position: str | None = None
    queue_locks_position: str | None = None
    timer_metrics_position: str | None = None
    delay_offsets_position: str | None = None
    timer_check_point_position: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetadataChangesResponseHeader(Header):
    """Response header of GET_METADATA_CHANGES: the run of the master that the numbers are of, the
    end of its log, and whether there are more changes.
    """

    source: str
    log_end: Int64
    has_more: bool


# The field with the position of each table, by the table's name in the response.
POSITION_FIELDS: Final[Mapping[str, str]] = {
    field.wire_name.removesuffix(_POSITION): field.name
    for field in wire_fields(GetMetadataChangesRequestHeader)
    if field.wire_name.endswith(_POSITION)
}
