"""Faults of the simulated network and its hosts show as they do on a real network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.testing.simulated_transport import WINDOW
from simulation.host_pair import Pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    with pair.simulation:
        yield pair


# -- silence


def test_a_silent_link_holds_bytes_back_until_it_heals(pair: Pair) -> None:
    client, server = pair.connect()
    pair.network.silence("a", "b")
    client.transport.write(b"lost and repeated")
    server.transport.write(b"other way")
    pair.until(lambda: client.data == b"other way")
    pair.never(lambda: server.data)
    pair.network.heal("a", "b")
    pair.until(lambda: server.data == b"lost and repeated")


def test_without_acknowledgements_the_sender_is_held_up_although_its_bytes_arrive(
    pair: Pair,
) -> None:
    client, server = pair.connect()
    pair.network.silence("a", "b")
    server.transport.write(bytes(3 * WINDOW))
    pair.never(lambda: len(client.data) > WINDOW)
    assert len(client.data) == WINDOW
    assert server.transport.get_write_buffer_size() == 2 * WINDOW
    pair.network.heal("a", "b")
    pair.until(lambda: len(client.data) == 3 * WINDOW)


def test_a_reset_is_lost_in_a_partition_and_the_peer_learns_by_its_next_bytes(pair: Pair) -> None:
    client, server = pair.connect()
    pair.network.partition("a", "b")
    client.transport.abort()
    pair.never(lambda: server.is_lost)
    pair.network.heal_all()
    pair.never(lambda: server.is_lost)
    server.transport.write(b"anybody there?")
    pair.until(lambda: server.is_lost)
    assert isinstance(server.error, ConnectionResetError)


def test_a_close_during_a_partition_arrives_when_it_heals(pair: Pair) -> None:
    client, server = pair.connect()
    pair.network.partition("a", "b")
    client.transport.write(b"last words")
    client.transport.close()
    pair.never(lambda: server.is_lost)
    pair.network.heal("a", "b")
    pair.until(lambda: server.is_lost)
    assert server.data == b"last words"
    assert server.error is None


# -- hosts that die


def test_the_peers_of_a_killed_process_get_resets_and_new_connections_are_refused(
    pair: Pair,
) -> None:
    client, server = pair.connect()
    pair.b.kill()
    pair.until(lambda: client.is_lost)
    assert isinstance(client.error, ConnectionResetError)
    assert server.events == ["made"]
    pair.dial()
    pair.until(lambda: pair.failures)
    assert isinstance(pair.failures[0], ConnectionRefusedError)
    pair.b.start(pair.serve)
    again, _ = pair.connect()
    pair.b.kill()
    pair.until(lambda: again.is_lost)


def test_the_peers_of_a_machine_without_power_hear_nothing_until_it_is_back(pair: Pair) -> None:
    client, server = pair.connect()
    pair.b.lose_power()
    client.transport.write(b"hello?")
    pair.never(lambda: client.is_lost)
    pair.dial()
    pair.until(lambda: pair.failures)
    assert isinstance(pair.failures[0], TimeoutError)
    pair.b.start(pair.serve)
    pair.until(lambda: client.is_lost)
    assert isinstance(client.error, ConnectionResetError)
    assert server.data == b""
    assert server.events == ["made"]


def test_a_process_that_dies_while_it_connects_is_not_heard_of_again(pair: Pair) -> None:
    client = pair.dial()
    pair.a.kill()
    pair.simulation.run_for(10_000)
    assert (client.events, pair.failures, pair.accepted) == ([], [], [])


def test_a_listener_that_dies_before_it_accepts_resets_the_caller(pair: Pair) -> None:
    pair.network.delay("a", "b", ms_min=50, ms_max=50)
    client = pair.dial()
    pair.until(lambda: client.events)  # the confirmation is on its way
    pair.b.kill()
    pair.until(lambda: client.is_lost)
    assert (client.events, pair.accepted) == (["made", "lost"], [])


# -- a paused process


def test_a_paused_process_accepts_and_reads_when_it_resumes(pair: Pair) -> None:
    pair.b.pause()
    client = pair.dial()
    pair.until(lambda: client.events)
    client.transport.write(bytes(2 * WINDOW))
    pair.simulation.run_for(10_000)
    assert pair.accepted == []
    assert client.transport.get_write_buffer_size() == WINDOW
    pair.b.resume()
    pair.until(lambda: pair.accepted and len(pair.accepted[0].data) == 2 * WINDOW)


def test_a_paused_process_neither_writes_more_nor_learns_anything(pair: Pair) -> None:
    client, server = pair.connect()
    client.transport.write(bytes(4 * WINDOW))
    assert client.events == ["made", "pause"]
    pair.a.pause()
    pair.never(lambda: len(server.data) > WINDOW)
    assert client.events == ["made", "pause"]
    pair.b.kill()
    pair.simulation.run_for(1_000)
    assert not client.is_lost
    pair.a.resume()
    pair.until(lambda: client.is_lost)


def test_a_connection_that_is_reset_before_its_paused_caller_sees_it_is_made_and_lost(
    pair: Pair,
) -> None:
    client = pair.dial()
    pair.a.pause()
    pair.until(lambda: pair.accepted)
    pair.accepted[0].transport.abort()
    pair.simulation.run_for(1_000)
    pair.a.resume()
    pair.until(lambda: client.is_lost)
    assert client.events == ["made", "lost"]
    assert pair.failures == []


def test_a_process_whose_connection_is_reset_may_not_be_asked_to_write_more(pair: Pair) -> None:
    client, server = pair.connect()
    client.transport.write(bytes(4 * WINDOW))
    pair.a.pause()
    pair.simulation.run_for(1_000)
    server.transport.abort()
    pair.simulation.run_for(1_000)
    pair.a.resume()
    pair.until(lambda: client.is_lost)
    assert client.events == ["made", "pause", "lost"]
