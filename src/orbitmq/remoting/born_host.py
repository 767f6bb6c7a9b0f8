"""The address of a client as the records of its messages hold it."""

from __future__ import annotations

from typing import Final

from orbitmq.message import hosts
from orbitmq.remoting.channel import Channel

BORN_HOST: Final = "born_host"  # the channel attribute that holds it


def born_host_of(channel: Channel) -> bytes:
    """Return the packed address of the peer; cached per connection."""
    found: bytes | None = channel.attributes.get(BORN_HOST)
    if found is None:
        address, _, port = channel.remote_address.rpartition(":")
        found = channel.attributes[BORN_HOST] = hosts.pack(address.strip("[]"), int(port))
    return found
