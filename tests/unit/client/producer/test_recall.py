"""Recalls: the handle of a scheduled message, and a broker that cannot recall it."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.messages import Message
from orbitmq.client.producer.producer import Producer
from orbitmq.common.errors import InvalidMessageError, RequestRefusedError
from orbitmq.embedded.cluster import EmbeddedCluster
from orbitmq.message.recall_handle import RecallHandle
from support.client.library import run

names = st.text(st.characters(exclude_characters=" ", exclude_categories=["Cs"]), min_size=1)


def handle(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode()


@given(names, names, st.integers(0, 2**62), names, st.booleans())
def test_a_handle_says_what_it_is_for_padded_or_not(
    topic: str, broker: str, time_ms: int, msg_id: str, is_padded: bool
) -> None:
    text = handle(f"v1 {topic} {broker} {time_ms} {msg_id}")
    assert RecallHandle.parse(text if is_padded else text.rstrip("=")) == RecallHandle(
        topic, broker, time_ms, msg_id
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "ü",
        handle("v2 T b 1 ID"),
        handle("v1 T b soon ID"),
        handle("v1 T b 1"),
        "////",
    ],
)
def test_what_is_no_handle_is_refused_with_where_to_find_one(text: str) -> None:
    with pytest.raises(
        InvalidMessageError, match="is not a recall handle; use the one of the SendResult"
    ):
        RecallHandle.parse(text)


def test_a_broker_that_may_not_recall_is_told_how_to() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address) as producer:
            await producer.send(Message("T", b"makes the topic"))
            with pytest.raises(
                RequestRefusedError,
                match=r"broker broker-a did not recall ID: .*set recallMessageEnable=true",
            ):
                await producer.recall("T", handle("v1 T broker-a 99999999999999 ID"))

    run(scenario)


def test_a_message_by_delay_level_says_why_it_cannot_be_recalled() -> None:
    async def scenario(cluster: EmbeddedCluster) -> None:
        async with Producer(cluster.name_server_address) as producer:
            sent = await producer.send(Message("T", b"later", delay_level=3))
            with pytest.raises(
                InvalidMessageError,
                match="the recall handle is empty: only messages with delay_ms or deliver_at_ms",
            ):
                await producer.recall("T", sent.recall_handle)

    run(scenario)
