"""The simulated network: connections are made and refused, and streams keep their bytes and their
order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.testing.simulated_transport import WINDOW
from simulation.host_pair import PORT, Pair, Recorder


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    with pair.simulation:
        yield pair


# -- connections


def test_a_connection_reaches_the_listener_and_knows_its_addresses(pair: Pair) -> None:
    client, server = pair.connect()
    assert (client.events, server.events) == (["made"], ["made"])
    assert client.transport.get_extra_info("peername") == (pair.b.address, PORT)
    assert server.transport.get_extra_info("sockname") == (pair.b.address, PORT)
    assert server.transport.get_extra_info("peername") == client.transport.get_extra_info(
        "sockname"
    )
    assert client.transport.get_protocol() is client


def test_without_a_listener_a_connection_is_refused(pair: Pair) -> None:
    client = pair.dial(PORT + 1)
    pair.until(lambda: pair.failures)
    [error] = pair.failures
    assert isinstance(error, ConnectionRefusedError)
    assert "nothing listens on port 9001" in str(error)
    assert client.events == []


def test_a_closed_listener_refuses_and_its_connections_stay(pair: Pair) -> None:
    listener = pair.b.listen(0, Recorder)
    port = listener.address[1]
    client = pair.dial(port)
    pair.until(lambda: client.events)
    listener.close()
    listener.close()
    pair.dial(port)
    pair.until(lambda: pair.failures)
    assert client.events == ["made"]


def test_a_port_has_one_listener(pair: Pair) -> None:
    with pytest.raises(OSError, match="b listens on port 9000 already"):
        pair.b.listen(PORT, Recorder)


def test_a_host_connects_to_itself(pair: Pair) -> None:
    pair.b.connect(("b", PORT), Recorder, failed=pair.failures.append)
    pair.until(lambda: pair.accepted)


def test_an_unknown_host_is_an_error_that_names_the_others(pair: Pair) -> None:
    with pytest.raises(ValueError, match=r"no host c: those that joined are a, b"):
        pair.a.connect(("c", PORT), Recorder, failed=pair.failures.append)
    with pytest.raises(ValueError, match="there is a host a already"):
        pair.network.join(pair.a)


@pytest.mark.parametrize("way", [("a", "b"), ("b", "a")])
def test_a_silent_link_lets_a_connection_time_out_and_the_listener_sees_none(
    pair: Pair, way: tuple[str, str]
) -> None:
    pair.network.silence(*way)
    client = pair.dial()
    pair.until(lambda: pair.failures)
    assert isinstance(pair.failures[0], TimeoutError)
    pair.network.heal("a", "b")
    pair.simulation.run_for(10_000)
    assert (client.events, pair.accepted, len(pair.failures)) == ([], [], 1)


def test_a_connection_is_made_when_the_link_heals_in_time(pair: Pair) -> None:
    pair.network.partition("a", "b")
    client = pair.dial()
    pair.simulation.run_for(1_000)
    pair.network.heal("a", "b")
    pair.until(lambda: client.events and pair.accepted)
    pair.simulation.run_for(10_000)
    assert pair.failures == []


# -- bytes


def test_bytes_arrive_in_order_and_in_pieces_of_any_size(pair: Pair) -> None:
    client, server = pair.connect()
    sent = bytes(range(256)) * 2_000
    client.transport.write(sent)
    client.transport.writelines([b"and ", bytearray(b"more")])
    pair.until(lambda: len(server.data) == len(sent) + 8)
    assert server.data == sent + b"and more"
    assert len(set(server.pieces)) > 10
    server.transport.write(b"reply")
    pair.until(lambda: client.data == b"reply")


def test_a_reader_that_pauses_fills_the_window_then_the_write_buffer(pair: Pair) -> None:
    client, server = pair.connect()
    server.transport.pause_reading()
    assert not server.transport.is_reading()
    client.transport.write(bytes(WINDOW + 1_000))
    pair.simulation.run_for(60_000)
    assert server.data == b""
    assert client.transport.get_write_buffer_size() == 1_000
    assert client.events == ["made"]
    low, high = client.transport.get_write_buffer_limits()
    client.transport.write(bytes(high))
    assert client.events == ["made", "pause"]
    server.transport.resume_reading()
    pair.until(lambda: len(server.data) == WINDOW + 1_000 + high)
    assert client.events == ["made", "pause", "resume"]
    assert client.transport.get_write_buffer_size() == 0
    assert low < high


@pytest.mark.parametrize(
    ("high", "low", "limits"),
    [(None, None, (16_384, 65_536)), (100, None, (25, 100)), (None, 10, (10, 40)), (8, 2, (2, 8))],
)
def test_the_limits_of_the_write_buffer_are_those_of_asyncio(
    pair: Pair, high: int | None, low: int | None, limits: tuple[int, int]
) -> None:
    client, _ = pair.connect()
    client.transport.set_write_buffer_limits(high=high, low=low)
    assert client.transport.get_write_buffer_limits() == limits


def test_a_slow_link_takes_the_time_that_its_bandwidth_gives(pair: Pair) -> None:
    client, server = pair.connect()
    pair.network.slow("a", "b", 10_000)
    begun_ms = pair.simulation.now_ms
    client.transport.write(bytes(50_000))
    pair.until(lambda: len(server.data) == 50_000)
    assert 5_000 <= pair.simulation.now_ms - begun_ms < 5_100
    server.transport.write(bytes(50_000))
    begun_ms = pair.simulation.now_ms
    pair.until(lambda: len(client.data) == 50_000)
    assert pair.simulation.now_ms - begun_ms < 200


def test_a_delay_is_within_its_limits(pair: Pair) -> None:
    client, server = pair.connect()
    pair.network.delay("a", "b", ms_min=100, ms_max=120)
    begun_ms = pair.simulation.now_ms
    client.transport.write(b"x")
    pair.until(lambda: server.data)
    assert 100 <= pair.simulation.now_ms - begun_ms <= 120


# -- ends


def test_close_sends_all_bytes_and_then_the_end(pair: Pair) -> None:
    client, server = pair.connect()
    sent = bytes(3 * WINDOW)
    client.transport.write(sent)
    client.transport.close()
    assert client.transport.is_closing()
    client.transport.write(b"ignored")
    pair.until(lambda: server.is_lost and client.is_lost)
    assert server.data == sent
    assert (server.events[-2:], server.error) == (["end", "lost"], None)
    assert (client.events[-1], client.error) == ("lost", None)


def test_abort_resets_the_peer(pair: Pair) -> None:
    client, server = pair.connect()
    client.transport.abort()
    client.transport.abort()
    pair.until(lambda: server.is_lost and client.is_lost)
    assert isinstance(server.error, ConnectionResetError)
    assert client.error is None
    assert client.events.count("lost") == server.events.count("lost") == 1


def test_bytes_that_reach_a_closed_end_reset_the_sender(pair: Pair) -> None:
    client, server = pair.connect()
    server.stays_open = True
    client.transport.close()
    pair.until(lambda: server.events[-1] == "end")
    pair.never(lambda: server.is_lost)
    server.transport.write(b"more")
    pair.until(lambda: server.is_lost)
    assert isinstance(server.error, ConnectionResetError)


def test_cut_and_reset_show_at_both_ends(pair: Pair) -> None:
    for fault, kind in ((pair.network.cut, type(None)), (pair.network.reset, ConnectionResetError)):
        client, server = pair.connect()
        fault("a", "b")
        pair.until(lambda: client.is_lost and server.is_lost)  # noqa: B023
        assert isinstance(client.error, kind)
        assert isinstance(server.error, kind)
