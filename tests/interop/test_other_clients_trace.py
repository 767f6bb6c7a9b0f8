"""The trace of Apache's Go client, by the original brokers, 5.5.0 and 4.9.7, and by ours; its C++
client writes none.
"""

from __future__ import annotations

import pytest

from interop.client_matrix_room import Room, run
from interop.other_clients import GO, StartClient
from orbitmq.client import trace_records
from orbitmq.client.trace_records import Consumed, ConsumeStarted, Published, TraceRecord
from orbitmq.common.topic_names import TRACE_TOPIC
from support.common.waiting import until

pytestmark = [pytest.mark.clients, pytest.mark.needs("go"), pytest.mark.timeout(180)]


@pytest.mark.parametrize("language", [GO], indirect=True)
def test_the_trace_of_the_client_tells_what_became_of_each_message(
    room: Room, start_client: StartClient
) -> None:
    topic = room.topic("GoTraced", 1)
    records: list[TraceRecord] = []

    async def find(kinds: set[tuple[type, str]]) -> None:
        async def are_told() -> bool:
            messages = await room.stored(TRACE_TOPIC, 1)
            records[:] = [
                record
                for message in messages
                for record in trace_records.decode(message.body.decode())
            ]
            return kinds <= {(type(record), record.msg_id) for record in records}

        await until(are_told)

    with start_client(room.address, is_traced=True) as peer:
        peer.consume("go-traced", topic)
        ids = [
            str(peer.send(topic, key, tag="tag", group="go-tracing")["id"])
            for key in ("one", "two")
        ]
        for key in ("one", "two"):
            peer.wait_consumed(key)
        run(
            lambda: find(
                {(kind, each) for kind in (Published, ConsumeStarted, Consumed) for each in ids}
            )
        )
    published = {record.msg_id: record for record in records if isinstance(record, Published)}
    for each, key in zip(ids, ("one", "two"), strict=True):
        record = published[each]
        assert (record.group, record.topic, record.keys, record.tags, record.is_success) == (
            "go-tracing",
            topic,
            key,
            "tag",
            True,
        )
