"""The columns that make up a message: their allowed Spark types, and the rows of a RecordBatch by
column.

Knows nothing of brokers. Problems of a schema are reported before the first row is written;
problems of a row raise InvalidMessageError.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.messages import Message
from orbitmq.common.errors import ConfigurationError, InvalidMessageError
from orbitmq.message import properties
from orbitmq.spark.kernels.arrow_texts import ArrowLists, ArrowTexts
from orbitmq.spark.kernels.outgoing_rows import RowColumns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TYPES: Final[dict[str, tuple[str, ...]]] = {  # Spark types by column
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
    """Refuse a schema that cannot become messages. With `has_topic`, an option names the topic of
    all rows.
    """
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        allowed = TYPES.get(field.name)
        if allowed is None:
            near = difflib.get_close_matches(field.name, TYPES, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigurationError(
                f"messages have no column {field.name}: {hint}Select only columns of"
                f" {', '.join(TYPES)}"
            )
        if field.dataType.simpleString() not in allowed:
            found = field.dataType.simpleString()
            raise ConfigurationError(
                f"column {field.name} is {found} but must be {' or '.join(allowed)}; cast it"
            )
    if len(set(names)) < len(names):
        raise ConfigurationError(f"columns {', '.join(names)}: each may occur only once")
    if "body" not in names:
        raise ConfigurationError(
            "there is no column body of type binary or string; to_json(struct(*)) makes one of all"
            " columns"
        )
    if not has_topic and "topic" not in names:
        raise ConfigurationError("messages have no topic: give the option topic, or a column topic")


class SinkRows(NamedTuple):
    """The rows of a RecordBatch by column, None for a missing one. Every array starts at the
    beginning of its buffers.
    """

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
        """Return the columns of a RecordBatch in the types that the encoder reads."""
        found = dict(zip(batch.schema.names, batch.columns, strict=True))
        keys = found.get("keys")
        return cls(
            topic=_normalized(found.get("topic"), _TEXT),
            body=_normalized(found["body"], pa.binary()),
            keys=_normalized(keys, _TEXTS if _is_list(keys) else _TEXT),
            tags=_normalized(found.get("tags"), _TEXT),
            properties=_normalized(found.get("properties"), _ENTRIES),
            sharding_key=_normalized(found.get("shardingKey"), _TEXT),
            delay_level=_normalized(found.get("delayLevel"), pa.int64()),
            deliver_at=(
                None
                if (time := found.get("deliverTimestamp")) is None
                else time.cast(_TIME_MS, safe=False)
            ),
        )

    def columns(self, *, has_topic: bool) -> RowColumns:
        """Return the columns as the kernel reads them."""
        is_run = _is_list(self.keys)
        return RowColumns(
            size=len(self.body),
            topic=None if has_topic else _texts(self.topic),
            body=ArrowTexts(self.body),
            keys=None if is_run else _texts(self.keys),
            key_lists=ArrowLists(self.keys) if is_run else None,
            tags=_texts(self.tags),
            properties=None if self.properties is None else ArrowLists(self.properties),
            sharding_key=_texts(self.sharding_key),
            is_alone=self._delayed_rows(),
        )

    def _delayed_rows(self) -> pa.Buffer | None:
        """Return one byte per row, not 0 for delayed messages; None if there are none."""
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
        """Return a row as a separate message."""
        keys = self._value(self.keys, row) or ()
        own = {
            name: text for name, text in self._value(self.properties, row) or () if text is not None
        }
        if drops_reserved:
            own = {name: text for name, text in own.items() if name not in properties.RESERVED}
        level = self._value(self.delay_level, row) or 0
        if level < 0:
            raise InvalidMessageError(
                f"its delayLevel is {level}; give one of the broker's levels, or 0 for no delay"
            )
        deliver_at_ms = None if self.deliver_at is None else self.deliver_at[row].value
        if level and deliver_at_ms is not None:
            raise InvalidMessageError(
                "it has both a delayLevel and a deliverTimestamp; set only one"
            )
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
    return array is not None and (
        pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    )


def _normalized(array: pa.Array | None, kind: pa.DataType) -> pa.Array | None:
    """Return the array with the given type and with buffers that start at its first value."""
    if array is None:
        return None
    is_such = array.type == kind
    if pa.types.is_map(kind):  # Arrow's map types also differ by the nullability of values
        is_such = array.type.key_type == kind.key_type and array.type.item_type == kind.item_type
    if not is_such:
        array = array.cast(kind)
    return pa.concat_arrays([array]) if array.offset else array


def _texts(array: pa.Array | None) -> ArrowTexts | None:
    return None if array is None else ArrowTexts(array)
