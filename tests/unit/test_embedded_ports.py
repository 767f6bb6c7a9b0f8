"""Ports that are kept for brokers are kept on every address that is named."""

from __future__ import annotations

import socket

import pytest

from orbitmq.embedded.ports import FAST, REPLICATION, ReservedPort

HERE, BEHIND = "127.0.0.1", "127.0.0.2"


@pytest.mark.parametrize("distance", [0, FAST, REPLICATION])
@pytest.mark.parametrize("host", [HERE, BEHIND])
def test_nobody_else_gets_a_kept_port_and_a_server_may_listen_on_it(
    host: str, distance: int
) -> None:
    with ReservedPort(HERE, BEHIND) as kept:
        address = (host, kept.port + distance)
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(address)
        socket.create_server(address).close()
    with socket.socket() as stranger:
        stranger.bind(address)
