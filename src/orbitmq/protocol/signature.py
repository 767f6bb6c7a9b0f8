"""The signature of a request, by which a server knows whose it is: HMAC-SHA1 over the values of its fields, in the order of their names,
and its body.

Numbers of the header itself (code, opaque, flag) are not signed. Pure.
"""

from __future__ import annotations

import binascii
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - its name


_BLOCK: Final = 64  # of SHA-1
_KEYS_MAX: Final = 1024


class SigningKey:
    """A secret as HMAC-SHA1 uses it (RFC 2104), worked in once: that takes longer than a message of some hundred bytes."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: str) -> None:
        key = secret_key.encode()
        if len(key) > _BLOCK:
            key = hashlib.sha1(key, usedforsecurity=False).digest()
        key = key.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in key), usedforsecurity=False)
        self._outer = hashlib.sha1(bytes(byte ^ 0x5C for byte in key), usedforsecurity=False)

    def sign(self, content: bytes | memoryview) -> bytes:
        """The signature of a content, in Base64."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)


signing_key = lru_cache(_KEYS_MAX)(SigningKey)  # of each secret that was used lately


def signature(fields: Mapping[str, str], body: bytes | None, secret_key: str) -> str:
    """What `fields` and `body` are signed with; a signature that is among the fields does not count."""
    values = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE)
    return signing_key(secret_key).sign(values.encode() + (body or b"")).decode()


def unsigned(fields: Mapping[str, str] | None) -> dict[str, str]:
    """The fields without what says who signed them: for whoever is not meant to have it."""
    return {name: value for name, value in (fields or {}).items() if name not in (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)}
