"""SQL92 filters of Apache's Go client with the original brokers, 5.5.0 and 4.9.7, and with ours;
its C++ client knows tags only.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interop.client_matrix_room import Room
from interop.other_clients import GO, StartClient

pytestmark = [
    pytest.mark.clients,
    pytest.mark.needs("go"),
    pytest.mark.timeout(180),
    pytest.mark.parametrize("language", [GO], indirect=True),
]

Choice = Callable[[int, str | None], bool]

COLORS = ("red", "größe", None)
EXPRESSIONS: dict[str, Choice] = {
    "size BETWEEN 3 AND 5 AND color IN ('red', 'größe')": lambda size, color: (
        3 <= size <= 5 and color is not None
    ),
    "size > 6 OR color IS NULL": lambda size, color: size > 6 or color is None,
    "TAGS = 'even' AND color <> 'red'": lambda size, color: size % 2 == 0 and color == "größe",
    "NOT (color = 'red') AND price >= 1.5": lambda size, color: color == "größe" and size >= 2,
}


def test_an_expression_chooses_by_properties_and_tags(
    room: Room, start_client: StartClient
) -> None:
    topic = room.topic("GoSql", 1)
    with start_client(room.address) as peer:
        for number, expression in enumerate(
            EXPRESSIONS
        ):  # one at a time, so that all before the last one have been told of with it
            peer.consume(
                f"go-sql-{number}",
                topic,
                f"({expression}) OR TAGS = 'last'",
                sql=True,
                orderly=True,
            )
        for size in range(8):
            for color in COLORS:
                colored = {"color": color} if color is not None else {}
                properties = {"size": str(size), "price": str(size * 0.75), **colored}
                peer.send(
                    topic,
                    f"{color}-{size}",
                    tag="even" if size % 2 == 0 else "odd",
                    properties=properties,
                )
        peer.send(topic, "last", tag="last")
        for number, (expression, is_chosen) in enumerate(EXPRESSIONS.items()):
            peer.wait_for("consumed", group=f"go-sql-{number}", key="last")
            came = [event["key"] for event in peer.happened("consumed", group=f"go-sql-{number}")]
            wanted = [
                f"{color}-{size}" for size in range(8) for color in COLORS if is_chosen(size, color)
            ]
            assert came == [*wanted, "last"], expression


def test_who_subscribes_by_what_is_no_expression_gets_nothing_and_nobody_else_is_hindered(
    room: Room, start_client: StartClient
) -> None:
    topic = room.topic("GoBadSql", 1)
    with start_client(room.address) as peer:
        peer.consume("go-bad-sql", topic, "size > > 3", sql=True)
        peer.consume("go-good-sql", topic, "size > 3", sql=True, orderly=True)
        for size in range(6):
            peer.send(topic, f"size-{size}", properties={"size": str(size)})
        peer.wait_for("consumed", group="go-good-sql", key="size-5")
        assert [event["key"] for event in peer.happened("consumed")] == ["size-4", "size-5"]
