"""Headers of filter servers, which 4.9 has."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFilterServerRequestHeader(Header):
    """301: a filter server serves there, or still does."""

    filter_server_addr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFilterServerResponseHeader(Header):
    """Answer to 301."""

    broker_name: str
    broker_id: Int64
