"""RemotingCommand: one request or response, independent of its header encoding.

Values only: bytes are written and read by `header_json`, `header_binary` and `frame`. A kernel:
`command.pxd` gives its members C types.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from orbitmq.protocol.codes import LanguageCode
from orbitmq.protocol.versions import CURRENT_VERSION

_MEMBERS = (
    "body",
    "code",
    "ext_fields",
    "flag",
    "language",
    "opaque",
    "remark",
    "serialize_type",
    "version",
)

_PYTHON = LanguageCode.PYTHON  # an enum lookup would cost as much as the rest of a response

FLAG_RESPONSE = 1
FLAG_ONEWAY = 2


class SerializeType(IntEnum):
    """The encoding of a header; the value is the number on the wire."""

    JSON = 0
    ROCKETMQ = 1


class HeaderFields(Protocol):
    """A typed header that can return its fields as texts."""

    def to_fields(self) -> dict[str, str]: ...


class RemotingCommand:
    """One request or response.

    `ext_fields` is None if the peer sent none; a response whose header has no values sends an empty
    map, as the original does. `body` is None if there is none: on the wire an empty body and none
    are the same.
    """

    def __init__(
        self,
        code: int,
        *,
        ext_fields: dict[str, str] | None = None,
        body: bytes | None = None,
        remark: str | None = None,
        opaque: int = 0,
        flag: int = 0,
        language: LanguageCode = LanguageCode.PYTHON,
        version: int = CURRENT_VERSION,
        serialize_type: SerializeType = SerializeType.JSON,
    ) -> None:
        self.code = code
        self.ext_fields = ext_fields
        self.body = body
        self.remark = remark
        self.opaque = opaque
        self.flag = flag
        self.language = language
        self.version = version
        self.serialize_type = serialize_type

    @classmethod
    def request(
        cls, code: int, header: HeaderFields | None = None, body: bytes | None = None
    ) -> RemotingCommand:
        """Return a new request; the sender assigns its opaque."""
        return cls(code, ext_fields=None if header is None else header.to_fields(), body=body)

    def reply(
        self,
        code: int,
        remark: str | None = None,
        *,
        header: HeaderFields | None = None,
        body: bytes | None = None,
    ) -> RemotingCommand:
        """Return a response to this request, with its opaque and its header encoding, so every peer
        can read it.
        """
        response: RemotingCommand = RemotingCommand.__new__(RemotingCommand)
        response.code = code
        response.ext_fields = None if header is None else header.to_fields()
        response.body = body
        response.remark = remark
        response.opaque = self.opaque
        response.flag = FLAG_RESPONSE
        response.language = _PYTHON
        response.version = CURRENT_VERSION
        response.serialize_type = self.serialize_type
        return response

    def bind(self, request: RemotingCommand) -> None:
        """Make this command the response to `request`."""
        self.opaque = request.opaque
        self.flag |= FLAG_RESPONSE
        self.serialize_type = request.serialize_type

    @property
    def is_response(self) -> bool:
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & FLAG_ONEWAY != 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemotingCommand):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _MEMBERS)

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        body_length = 0 if self.body is None else len(self.body)
        return (
            f"RemotingCommand({kind} code={self.code} opaque={self.opaque} version={self.version}"
            f" language={self.language.name} remark={self.remark!r} fields={self.ext_fields!r}"
            f" body={body_length} bytes)"
        )
