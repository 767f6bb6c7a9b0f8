"""The list of name servers: its text form, the server in use, and its lookup by HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from orbitmq.common.errors import ConfigurationError, RemoteUnavailableError

LOOKUP_BYTES_MAX = 64 * 1024
LOOKUP_TIMEOUT_MS = 3000


class NameServerList:
    """The name servers of a client: one is used until it fails, then the next."""

    def __init__(self, addresses: Sequence[str], choose: random.Random | None = None) -> None:
        self._addresses: list[str] = []
        self._current: str | None = None
        self._choose = choose or random.Random()
        self.update(addresses)

    def update(self, addresses: Sequence[str]) -> None:
        """Replace the list; the server in use is kept if it is still listed."""
        self._addresses = list(dict.fromkeys(addresses))
        if self._current not in self._addresses:
            # Each client starts at a random one, which spreads the load.
            self._current = self._choose.choice(self._addresses) if self._addresses else None

    def in_order(self) -> list[str]:
        """Return all of them, the one in use first."""
        if self._current is None:
            return []
        at = self._addresses.index(self._current)
        return self._addresses[at:] + self._addresses[:at]

    def use(self, address: str) -> None:
        """Prefer `address`, which responded, from now on."""
        if address in self._addresses:
            self._current = address


def parse_list(text: str) -> list[str]:
    """Return the addresses in `host:port;host:port`."""
    addresses = [part.strip() for part in text.replace(",", ";").split(";") if part.strip()]
    for address in addresses:
        split_address(address)
    return addresses


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[ipv6]:port`."""
    host, colon, port = address.removeprefix("http://").rpartition(":")
    if colon and host and port.isascii() and port.isdecimal() and not 0 < int(port) < 65536:
        raise ConfigurationError(
            f"{address!r} is not an address: the port {port} is not between 1 and 65535"
        )
    if not colon or not host or not (port.isascii() and port.isdecimal()):
        raise ConfigurationError(
            f"{address!r} is not an address of the form host:port; several are separated by ';', as"
            " in 10.0.0.1:9876;10.0.0.2:9876"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


def address_server_url(domain: str, group: str, unit: str | None = None) -> str:
    """Return the URL at which the address server `domain` (host or host:port) lists the name
    servers of a group, or of a unit in it.
    """
    host = domain if ":" in domain else f"{domain}:8080"
    return f"http://{host}/rocketmq/{group}" + (f"-{unit}?nofix=1" if unit else "")


async def look_up(url: str) -> list[str]:
    """Return the name servers that the address server at `url` lists, within LOOKUP_TIMEOUT_MS."""
    timeout_s = LOOKUP_TIMEOUT_MS / 1000

    def fetch() -> bytes:
        import urllib.error  # imported here, since few need it and it is slow to import
        import urllib.request

        try:
            with urllib.request.urlopen(url, timeout=timeout_s) as response:  # noqa: S310 - the scheme is checked below
                return response.read(LOOKUP_BYTES_MAX)  # type: ignore[no-any-return]
        except urllib.error.HTTPError as problem:
            with problem:  # it holds the connection open
                raise

    if not url.startswith(("http://", "https://")):
        raise ConfigurationError(
            f"{url!r} is not an http address of an address server, such as"
            " http://host:8080/rocketmq/nsaddr"
        )
    try:
        async with asyncio.timeout(
            timeout_s
        ):  # urlopen's timeout applies to each read, and not to resolving the host
            text = (await asyncio.to_thread(fetch)).decode("utf-8", "replace").strip()
        addresses = parse_list(text)
    except (OSError, ValueError, ConfigurationError) as problem:
        raise RemoteUnavailableError(
            f"the address server {url} returned no name servers: {problem}"
        ) from problem
    if not addresses:
        raise RemoteUnavailableError(
            f"the address server {url} returned an empty list of name servers"
        )
    return addresses
