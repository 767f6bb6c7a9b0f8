"""What commands are told in texts: times, places, queues and pairs."""

from __future__ import annotations

from datetime import UTC, datetime

import click
import pytest

from orbitmq.cli.arguments import chosen_queue, key_values, time_ms
from orbitmq.protocol.bodies.clients import MessageQueue

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("now", NOW_MS),
        ("-15m", NOW_MS - 900_000),
        ("-250ms", NOW_MS - 250),
        ("-2h", NOW_MS - 7_200_000),
        ("-1d", NOW_MS - 86_400_000),
        ("@1234", 1234),
        (
            "2026-01-31T12:00:00+00:00",
            int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000),
        ),
        ("2026-01-31", int(datetime(2026, 1, 31).astimezone().timestamp() * 1000)),
        ("2026-01-31 12:30", int(datetime(2026, 1, 31, 12, 30).astimezone().timestamp() * 1000)),
        (
            "2026-01-31#12:30:15:250",
            int(datetime(2026, 1, 31, 12, 30, 15, 250_000).astimezone().timestamp() * 1000),
        ),
    ],
)
def test_times_are_written_in_many_ways(text: str, expected_ms: int) -> None:
    assert time_ms(text, NOW_MS) == expected_ms


@pytest.mark.parametrize("text", ["", "soon", "-15", "15m", "@x", "2026-13-01", "1700000000000"])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError):
        time_ms(text, NOW_MS)


def test_a_queue_is_named_by_broker_and_number_or_by_number_where_that_is_enough() -> None:
    queues = [
        MessageQueue("T", "broker-a", 0),
        MessageQueue("T", "broker-a", 1),
        MessageQueue("T", "broker-b", 0),
    ]
    assert chosen_queue(queues, "broker-b:0", "--queue") == queues[2]
    assert chosen_queue(queues, "1", "--queue") == queues[1]
    with pytest.raises(click.BadParameter, match="may be any of broker-a:0, broker-b:0"):
        chosen_queue(queues, "0", "--queue")
    with pytest.raises(
        click.BadParameter, match="T has no queue '7'; there are broker-a:0, broker-a:1, broker-b:0"
    ):
        chosen_queue(queues, "7", "--queue")
    with pytest.raises(click.BadParameter, match="there are none"):
        chosen_queue([], "0", "--queue")


def test_pairs_are_cut_at_the_first_sign() -> None:
    assert key_values(["a=b=c", " d =", "a=z"]) == {"a": "z", "d": ""}
    with pytest.raises(click.BadParameter, match="'a' is not of the form KEY=VALUE"):
        key_values(["a"])
