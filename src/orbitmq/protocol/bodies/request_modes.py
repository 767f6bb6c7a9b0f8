"""Whether groups pull or pop messages of a topic: the body of SET_MESSAGE_REQUEST_MODE, and the
file messageRequestMode.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import as_object, integer, text

PULL: Final = "PULL"
POP: Final = "POP"


class RequestMode(NamedTuple):
    """How a group gets messages of a topic, and with how many others a popping consumer shares its
    queues.

    The mode is None if the original does not know it: it stores such an entry without a mode.
    """

    topic: str
    group: str
    mode: str | None
    pop_share_queue_num: int = 0

    def to_json(self) -> dict[str, Any]:
        return fastjson.bean(
            consumerGroup=self.group,
            mode=self.mode,
            popShareQueueNum=self.pop_share_queue_num,
            topic=self.topic,
        )

    @classmethod
    def from_json(cls, value: Any, topic: str = "", group: str = "") -> RequestMode:
        """Read the mode from its members; `topic` and `group` are used if they do not
        contain them.
        """
        members = as_object(value, "SetMessageRequestModeRequestBody")
        mode = text(members, "mode")
        return cls(
            text(members, "topic") or topic,
            text(members, "consumerGroup") or group,
            mode if mode in (PULL, POP) else None,
            integer(members, "popShareQueueNum", 0),
        )

    @classmethod
    def decode(cls, body: bytes) -> RequestMode:
        members = as_object(fastjson.loads(body), "SetMessageRequestModeRequestBody")
        if members.get("topic") is None or members.get("consumerGroup") is None:
            raise ProtocolError("topic and consumerGroup must be said")
        return cls.from_json(members)


ModeTable = Mapping[str, Mapping[str, RequestMode]]  # by topic and group


def encode_modes(table: ModeTable, *, pretty: bool = False) -> bytes:
    """Encode the response to GET_ALL_MESSAGE_REQUEST_MODE, or the content of the file."""
    return finish(encode_modes_in_slices(table, pretty=pretty))


def encode_modes_in_slices(table: ModeTable, *, pretty: bool = False) -> Slices[bytes]:
    dumps = fastjson.dumps_pretty_in_slices if pretty else fastjson.dumps_in_slices
    modes = fastjson.Entries(
        (topic, fastjson.Entries((group, mode.to_json()) for group, mode in groups.items()))
        for topic, groups in table.items()
    )
    return dumps({"messageRequestModeMap": modes})


def decode_modes(data: bytes) -> dict[str, dict[str, RequestMode]]:
    """Decode the content of the file; raise ProtocolError if it is malformed."""
    table = (
        as_object(fastjson.loads(data), "messageRequestMode.json").get("messageRequestModeMap")
        or {}
    )
    return {
        topic: {
            group: RequestMode.from_json(mode, topic, group)
            for group, mode in as_object(groups, "messageRequestModeMap").items()
        }
        for topic, groups in as_object(table, "messageRequestModeMap").items()
    }
