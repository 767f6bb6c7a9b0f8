"""The topics of a broker as bodies and as the file topics.json, member by member as RocketMQ 5.5.0
writes them.

A single topic is `TopicConfig` in `bodies.nameserver`. Tables keep their order, which has no
meaning to the original, nor here. Unknown members are dropped on reading, as in the original.
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring as quoted
from typing import Any, NamedTuple

from orbitmq.common.errors import ProtocolError
from orbitmq.common.slices import Slices
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import DataVersion, TopicConfig, as_object, items_in_slices


def next_version(version: DataVersion, now_ms: int, state_version: int) -> DataVersion:
    """Return the version of a table after a change."""
    return DataVersion(counter=version.counter + 1, timestamp=now_ms, state_version=state_version)


class TopicFile(NamedTuple):
    """The content of topics.json. `beginnings` are log offsets by topic, our own member, which the
    original ignores and drops.
    """

    topics: dict[str, TopicConfig]
    version: DataVersion | None
    beginnings: dict[str, int]


def encode_topic_file(
    topics: Mapping[str, TopicConfig],
    version: DataVersion,
    beginnings: Mapping[str, int] | None = None,
) -> bytes:
    """Encode topics.json; formatted by hand, since each change writes all topics, possibly tens of
    thousands.
    """
    own = {"topicBeginnings": dict(beginnings)} if beginnings else {}
    frame = fastjson.dumps_pretty({"dataVersion": version.to_json(), **own, "topicConfigTable": {}})
    if not topics:
        return frame
    assert frame.endswith(b"{}\n}")
    table = ",\n\t\t".join([f"{quoted(name)}:{_text(topic)}" for name, topic in topics.items()])
    return b"%s{\n\t\t%s\n\t}\n}" % (frame.removesuffix(b"{}\n}"), table.encode("utf-8", "replace"))


def decode_topic_file(data: bytes) -> TopicFile:
    """Decode the topics of topics.json, and the version if it has one; raise ProtocolError if the
    content is malformed.
    """
    members = as_object(fastjson.loads(data), "topics.json")
    version = members.get("dataVersion")
    topics = [
        TopicConfig.from_json(topic, name)
        for name, topic in as_object(members.get("topicConfigTable"), "topicConfigTable").items()
    ]
    beginnings = as_object(members.get("topicBeginnings") or {}, "topicBeginnings")
    if not all(isinstance(offset, int) and offset >= 0 for offset in beginnings.values()):
        raise ProtocolError("topicBeginnings has a value that is no log offset")
    return TopicFile(
        {topic.name: topic for topic in topics},
        None if version is None else DataVersion.from_json(version),
        dict(beginnings),
    )


def encode_all_topics(
    topics: Mapping[str, TopicConfig],
    version: DataVersion,
    mapping_version: DataVersion,
    mappings: Mapping[str, Any] | None = None,
) -> Slices[bytes]:
    """Encode the response to GET_ALL_TOPIC_CONFIG; `mappings` are the details of static topics.
    `topics` must not change meanwhile.
    """
    return fastjson.dumps_in_slices(
        {
            "dataVersion": version.to_json(),
            "mappingDataVersion": mapping_version.to_json(),
            "topicConfigTable": fastjson.Entries(
                (name, topic.to_json()) for name, topic in topics.items()
            ),
            "topicQueueMappingDetailMap": dict(mappings or {}),
            "topicQueueMappingInfoMap": {},
        }
    )


def decode_topic_list(body: bytes) -> Slices[list[TopicConfig]]:
    """Decode the topics of UPDATE_AND_CREATE_TOPIC_LIST; their attributes are changes, named
    `+name` or `-name`.
    """
    members = as_object((yield from fastjson.loads_in_slices(body)), "CreateTopicListRequestBody")
    return (yield from items_in_slices(members.get("topicConfigList"), TopicConfig.from_json))


def _text(topic: TopicConfig) -> str:
    attributes = ",\n\t\t\t\t".join(
        [f"{quoted(name)}:{quoted(value)}" for name, value in topic.attributes.items()]
    )
    members = (
        '"attributes":' + (f"{{\n\t\t\t\t{attributes}\n\t\t\t}}" if attributes else "{}"),
        f'"order":{"true" if topic.order else "false"}',
        f'"perm":{topic.perm}',
        f'"readQueueNums":{topic.read_queue_nums}',
        f'"topicFilterType":{quoted(topic.filter_type)}',
        f'"topicName":{quoted(topic.name)}',
        f'"topicSysFlag":{topic.sys_flag}',
        f'"writeQueueNums":{topic.write_queue_nums}',
    )
    return "{\n\t\t\t" + ",\n\t\t\t".join(members) + "\n\t\t}"
