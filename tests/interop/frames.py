"""Raw remoting frames over a plain socket: what a test sends, byte for byte, and what comes back.

Written against the wire format alone and not with the codecs of the product, so that a fault there
cannot hide here.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

JSON_TYPE = 0
BINARY_TYPE = 1
V4_9_3 = 399  # the newest that gets routes in the dialect with unquoted numbers as keys
V5_5_0 = 513
_LANGUAGES = (
    "JAVA",
    "CPP",
    "DOTNET",
    "PYTHON",
    "DELPHI",
    "ERLANG",
    "RUBY",
    "OTHER",
    "HTTP",
    "GO",
    "PHP",
    "OMS",
    "RUST",
    "NODE_JS",
)


class Closed(Exception):
    """The peer closed the connection instead of answering."""


@dataclass(frozen=True)
class Request:
    """One request; `header` replaces the whole encoded header where a test wants a broken one."""

    code: int
    fields: dict[str, str] | None = None
    body: bytes = b""
    version: int = V5_5_0
    language: str = "JAVA"
    flag: int = 0
    serialize_type: int = JSON_TYPE
    header: bytes | None = None

    def __str__(self) -> str:
        told = [
            f"request {self.code}",
            f"fields {self.fields}",
            f"body {self.body[:300]!r}",
            f"version {self.version}",
        ]
        return ", ".join(told) + (", binary header" if self.serialize_type == BINARY_TYPE else "")

    def encode(self, opaque: int) -> bytes:
        """The frame, length word included."""
        header = self.header
        if header is None:
            header = (
                self._binary_header(opaque)
                if self.serialize_type == BINARY_TYPE
                else self._json_header(opaque)
            )
        return (
            struct.pack(
                ">ii", 4 + len(header) + len(self.body), self.serialize_type << 24 | len(header)
            )
            + header
            + self.body
        )

    def _json_header(self, opaque: int) -> bytes:
        members: dict[str, object] = {
            "code": self.code,
            "flag": self.flag,
            "language": self.language,
            "opaque": opaque,
            "version": self.version,
        }
        if self.fields is not None:
            members["extFields"] = self.fields
        return json.dumps(members, sort_keys=True, separators=(",", ":")).encode()

    def _binary_header(self, opaque: int) -> bytes:
        fields = b""
        for key, value in (self.fields or {}).items():
            fields += (
                struct.pack(">h", len(key.encode()))
                + key.encode()
                + struct.pack(">i", len(value.encode()))
                + value.encode()
            )
        fixed = struct.pack(
            ">hbhii", self.code, _LANGUAGES.index(self.language), self.version, opaque, self.flag
        )
        return fixed + struct.pack(">i", 0) + struct.pack(">i", len(fields)) + fields


@dataclass(frozen=True)
class Answer:
    """One answer, its header decoded from either encoding."""

    code: int
    remark: str | None
    fields: dict[str, str]
    body: bytes
    opaque: int
    flag: int
    version: int
    language: str
    serialize_type: int = field(compare=False)

    def json(self) -> Any:
        return lenient_json(self.body)


def lenient_json(body: bytes) -> Any:
    """Parse fastjson's output; a key that was not quoted comes back as `~key`, so that the two
    dialects differ.
    """
    return json.loads(re.sub(r"([{,])(-?\d+):", r'\1"~\2":', body.decode())) if body else None


def _decode(frame: bytes) -> Answer:
    (word,) = struct.unpack_from(">I", frame)
    serialize_type, header_length = word >> 24, word & 0xFFFFFF
    header, body = frame[4 : 4 + header_length], frame[4 + header_length :]
    if serialize_type == JSON_TYPE:
        said = json.loads(header)
        return Answer(
            code=said["code"],
            remark=said.get("remark"),
            fields=said.get("extFields") or {},
            body=body,
            opaque=said["opaque"],
            flag=said["flag"],
            version=said["version"],
            language=said["language"],
            serialize_type=serialize_type,
        )
    code, language, version, opaque, flag, remark_length = struct.unpack_from(">hbhiii", header)
    at = 17
    remark = header[at : at + remark_length].decode() or None
    at += remark_length + 4
    fields: dict[str, str] = {}
    while at < len(header):
        (key_length,) = struct.unpack_from(">h", header, at)
        key = header[at + 2 : at + 2 + key_length].decode()
        at += 2 + key_length
        (value_length,) = struct.unpack_from(">i", header, at)
        fields[key] = header[at + 4 : at + 4 + value_length].decode()
        at += 4 + value_length
    return Answer(
        code, remark, fields, body, opaque, flag, version, _LANGUAGES[language], serialize_type
    )


class Connection:
    """One connection to a server that speaks the remoting protocol."""

    def __init__(self, peer: str | socket.socket, timeout_s: float = 10.0) -> None:
        """Connect to an address, or take over a socket that accepted a connection."""
        if isinstance(peer, str):
            host, port = peer.rsplit(":", 1)
            peer = socket.create_connection((host, int(port)))
        self._socket = peer
        self._socket.settimeout(timeout_s)
        self._opaques = count(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, request: Request) -> int:
        """Send one request without waiting, and return its opaque."""
        opaque = next(self._opaques)
        self.send_bytes(request.encode(opaque))
        return opaque

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Answer:
        """The next answer, whichever request it belongs to."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return _decode(self._exactly(length))

    def ask(self, request: Request) -> Answer:
        """Send one request and wait for its answer."""
        opaque = self.send(request)
        answer = self.receive()
        assert answer.opaque == opaque, f"asked with opaque {opaque}, answered with {answer.opaque}"
        return answer

    def _exactly(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            try:
                piece = self._socket.recv(length - len(data))
            except ConnectionResetError:
                piece = b""
            if not piece:
                raise Closed
            data += piece
        return data


def ask(address: str, request: Request) -> Answer:
    """One request over a connection of its own."""
    with Connection(address) as connection:
        return connection.ask(request)
