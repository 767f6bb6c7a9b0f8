"""Whose a client id is: of its first user while it lives, whatever other users and further
connections do.
"""

from __future__ import annotations

import logging

import pytest

from orbitmq.broker.clients import client_ids
from orbitmq.broker.clients.client_ids import ID_CHARS_MAX, IDS_PER_CONNECTION_MAX, ClientIds
from orbitmq.broker.clients.registry import SILENCE_MS_MAX
from support.remoting.channels import Peers

peers = Peers()


def test_another_user_may_not_take_an_id_and_nothing_changes() -> None:
    ids, mine, other = ClientIds(), peers.connect(), peers.connect()
    assert ids.use("a", "alice", mine) is None
    problem = ids.use("a", "bob", other)
    assert problem is not None
    assert "client id a belongs to another user" in problem
    assert ids.problem("a", "bob") == problem
    assert ids.problem("a", "alice") is None
    assert ids.use("b", "bob", other) is None
    ids.on_close(other, 0)
    assert ids.problem("a", "bob") == problem


def test_its_user_comes_by_as_many_connections_as_it_likes_before_and_after_others_ended() -> None:
    ids, first, second, third = ClientIds(), *(peers.connect() for _ in range(3))
    for channel in (first, second, first):
        assert ids.use("a", "alice", channel) is None
    ids.on_close(first, 0)
    assert ids.problem("a", "bob") is not None
    ids.on_close(second, 1000)
    ids.scan(1000 + SILENCE_MS_MAX)
    assert ids.problem("a", "bob") is not None, "a client that reconnects finds its id"
    assert ids.use("a", "alice", third) is None
    ids.scan(10 * SILENCE_MS_MAX)
    assert ids.problem("a", "bob") is not None


def test_an_id_is_free_when_its_user_said_goodbye_or_has_been_gone_for_long() -> None:
    ids, first, second, other = ClientIds(), *(peers.connect() for _ in range(3))
    ids.use("a", "alice", first)
    ids.use("a", "alice", second)
    ids.left(first)
    assert ids.problem("a", "bob") is not None, "there is another connection"
    ids.left(second)
    assert ids.use("a", "bob", other) is None
    ids.on_close(other, 500)
    ids.scan(500 + SILENCE_MS_MAX + 1)
    assert ids.problem("a", "alice") is None
    assert len(ids) == 0


def test_without_users_the_newest_connection_has_the_id_and_the_log_says_from_whom(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids, old, new = ClientIds(), peers.connect(), peers.connect()
    with caplog.at_level(logging.WARNING):
        for channel in (old, old, new, old):
            assert ids.use("a", None, channel) is None
    assert [record.getMessage() for record in caplog.records] == [
        f"client_id_moved client=a user=- peer={new.remote_address} before={old.remote_address}"
    ]
    ids.on_close(old, 0)
    ids.on_close(new, 0)
    assert len(ids) == 0, "nobody comes back for it"


def test_a_connection_has_so_many_ids_and_so_many_wait_for_their_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_ids, "WAITING_MAX", 3)
    ids, channel = ClientIds(), peers.connect()
    for number in range(IDS_PER_CONNECTION_MAX):
        assert ids.use(f"{number}", "alice", channel) is None
    problem = ids.use("one more", "alice", channel)
    assert problem is not None
    assert "the most allowed" in problem
    assert ids.use("0", "alice", channel) is None
    ids.on_close(channel, 0)
    assert len(ids) == 3
    assert ids.problem(f"{IDS_PER_CONNECTION_MAX - 1}", "bob") is not None


def test_an_id_that_is_too_long_is_refused_whoever_uses_it() -> None:
    ids = ClientIds()
    assert ids.use("x" * ID_CHARS_MAX, None, peers.connect()) is None
    for user in (None, "alice"):
        problem = ids.use("x" * (ID_CHARS_MAX + 1), user, peers.connect())
        assert problem is not None
        assert f"has {ID_CHARS_MAX + 1} characters" in problem
    assert len(ids) == 1
