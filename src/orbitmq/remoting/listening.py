"""Listening sockets."""

from __future__ import annotations

import errno
import os
import socket

from orbitmq.common.errors import ConfigurationError
from orbitmq.remoting.channel import address_text


def listening_socket(
    host: str, port: int, *, backlog: int = 128, port_key: str = "listenPort"
) -> socket.socket:
    """Return a non-blocking listening socket; all interfaces means IPv4 and IPv6 where the machine
    has both.

    ConfigurationError names the cause and the key to change.
    """
    dual = host in ("", "::", "*") and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    try:
        listener = socket.create_server(
            ("::" if dual else host, port), family=family, backlog=backlog, dualstack_ipv6=dual
        )
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            fix = f"another program listens there; stop it, or choose another port ({port_key})"
        elif problem.errno == errno.EADDRNOTAVAIL:
            fix = (
                "this host has no such address: set bindAddress to one that it has, or to 0.0.0.0"
                " for all"
            )
        else:
            fix = f"check bindAddress and {port_key}"
        why = (
            os.strerror(problem.errno)
            if problem.errno and problem.errno > 0
            else problem.strerror or problem
        )
        raise ConfigurationError(
            f"cannot listen on {address_text((host, port))}: {why}; {fix}"
        ) from problem
    listener.setblocking(False)
    return listener
