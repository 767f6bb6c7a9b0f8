"""The columns that a message is made of: which there are, what each may be in Spark, and the rows of a RecordBatch by these columns.

Knows nothing of brokers. What is wrong with a schema is said before a row is written; what is wrong with a row, MessageIllegal says.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.messages import Message
from orbitmq.common.errors import ConfigurationError, MessageIllegal
from orbitmq.message import properties
from orbitmq.spark.arrow_texts import ArrowRuns, ArrowTexts
from orbitmq.spark.outgoing_rows import RowColumns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TYPES: Final[dict[str, tuple[str, ...]]] = {  # in Spark, by column
    "topic": ("string",),
    "body": ("binary", "string"),
    "keys": ("string", "array<string>"),
    "tags": ("string",),
    "properties": ("map<string,string>",),
    "delayLevel": ("int", "bigint", "smallint", "tinyint"),
    "deliverTimestamp": ("timestamp",),
    "shardingKey": ("string",),
}
_TEXT: Final = pa.string()
_TEXTS: Final = pa.list_(_TEXT)
_ENTRIES: Final = pa.map_(_TEXT, _TEXT)
_TIME_MS: Final = pa.timestamp("ms", "UTC")


def check_schema(schema: StructType, *, has_topic: bool) -> None:
    """Refuse rows that no messages can be made of; `has_topic`: an option names the topic of all."""
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        allowed = TYPES.get(field.name)
        if allowed is None:
            near = difflib.get_close_matches(field.name, TYPES, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigurationError(
                f"column {field.name} is none that a message has: {hint}Select of {', '.join(TYPES)} those that are to be sent"
            )
        if field.dataType.simpleString() not in allowed:
            found = field.dataType.simpleString()
            raise ConfigurationError(f"column {field.name} is {found}, and has to be {' or '.join(allowed)}: cast it")
    if len(set(names)) < len(names):
        raise ConfigurationError(f"columns {', '.join(names)}: each may be there once")
    if "body" not in names:
        raise ConfigurationError("there is no column body, binary or string: name one so; to_json(struct(*)) makes one of all columns")
    if not has_topic and "topic" not in names:
        raise ConfigurationError("nothing says where messages go: give the option topic, or a column topic")


class SinkRows(NamedTuple):
    """The rows of a RecordBatch, by columns; None for one that is not there. Every array begins where its buffers do."""

    topic: pa.Array | None
    body: pa.Array
    keys: pa.Array | None
    tags: pa.Array | None
    properties: pa.Array | None
    sharding_key: pa.Array | None
    delay_level: pa.Array | None
    deliver_at: pa.Array | None

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> SinkRows:
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        keys = found.get("keys")
        return cls(
            topic=_plain(found.get("topic"), _TEXT),
            body=_plain(found["body"], pa.binary()),
            keys=_plain(keys, _TEXTS if _is_list(keys) else _TEXT),
            tags=_plain(found.get("tags"), _TEXT),
            properties=_plain(found.get("properties"), _ENTRIES),
            sharding_key=_plain(found.get("shardingKey"), _TEXT),
            delay_level=_plain(found.get("delayLevel"), pa.int64()),
            deliver_at=None if (time := found.get("deliverTimestamp")) is None else time.cast(_TIME_MS, safe=False),
        )

    def columns(self, *, has_topic: bool) -> RowColumns:
        """The same for the kernel."""
        is_run = _is_list(self.keys)
        return RowColumns(
            size=len(self.body),
            topic=None if has_topic else _texts(self.topic),
            body=ArrowTexts(self.body),
            keys=None if is_run else _texts(self.keys),
            key_runs=ArrowRuns(self.keys) if is_run else None,
            tags=_texts(self.tags),
            properties=None if self.properties is None else ArrowRuns(self.properties),
            sharding_key=_texts(self.sharding_key),
            is_alone=self._comes_later(),
        )

    def _comes_later(self) -> pa.Buffer | None:
        """Which rows have to wait at the broker: a byte for each, None when there is none."""
        masks = []
        if self.delay_level is not None:
            masks.append(pc.not_equal(self.delay_level.fill_null(0), 0))
        if self.deliver_at is not None:
            masks.append(self.deliver_at.is_valid())
        if not masks or not any(mask.true_count for mask in masks):
            return None
        mask = masks[0] if len(masks) == 1 else pc.or_(*masks)
        return mask.cast(pa.uint8()).buffers()[1]

    def message(self, row: int, topic: str, *, drops_reserved: bool) -> Message:
        """A row as a message of its own."""
        keys = self._value(self.keys, row) or ()
        own = {name: text for name, text in self._value(self.properties, row) or () if text is not None}
        if drops_reserved:
            own = {name: text for name, text in own.items() if name not in properties.RESERVED}
        level = self._value(self.delay_level, row) or 0
        if level < 0:
            raise MessageIllegal(f"its delayLevel is {level}; it is one of the broker's levels, or 0 for a message that comes at once")
        deliver_at_ms = None if self.deliver_at is None else self.deliver_at[row].value
        if level and deliver_at_ms is not None:
            raise MessageIllegal("it has a delayLevel and a deliverTimestamp, and one of them says when it comes")
        return Message(
            topic,
            self._value(self.body, row),
            self._value(self.tags, row),
            keys if isinstance(keys, str) else tuple(key for key in keys if key),
            own,
            sharding_key=self._value(self.sharding_key, row) or None,
            delay_level=level,
            deliver_at_ms=deliver_at_ms,
        )

    @staticmethod
    def _value(column: pa.Array | None, row: int) -> Any:
        return None if column is None else column[row].as_py()


def _is_list(array: pa.Array | None) -> bool:
    return array is not None and (pa.types.is_list(array.type) or pa.types.is_large_list(array.type))


def _plain(array: pa.Array | None, kind: pa.DataType) -> pa.Array | None:
    """The array with that type, and with buffers that begin with its first value."""
    if array is None:
        return None
    is_such = array.type == kind
    if pa.types.is_map(kind):  # two types of maps differ already when one says that no value is null
        is_such = array.type.key_type == kind.key_type and array.type.item_type == kind.item_type
    if not is_such:
        array = array.cast(kind)
    return pa.concat_arrays([array]) if array.offset else array


def _texts(array: pa.Array | None) -> ArrowTexts | None:
    return None if array is None else ArrowTexts(array)
