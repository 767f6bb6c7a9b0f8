"""Request signatures, by which a server authenticates them: HMAC-SHA1 over the field values,
ordered by field name, and the body.

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


_BLOCK: Final = 64  # block size of SHA-1, in bytes
_KEYS_MAX: Final = 1024


class SigningKey:
    """A secret prepared for HMAC-SHA1 (RFC 2104): the preparation takes longer than signing a
    message of some hundred bytes.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: str) -> None:
        key = secret_key.encode()
        if len(key) > _BLOCK:
            key = hashlib.sha1(key, usedforsecurity=False).digest()
        key = key.ljust(_BLOCK, b"\0")
        self._inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in key), usedforsecurity=False)
        self._outer = hashlib.sha1(bytes(byte ^ 0x5C for byte in key), usedforsecurity=False)

    def sign(self, content: bytes | memoryview) -> bytes:
        """Return the signature of a content, in Base64."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        outer.update(inner.digest())
        return binascii.b2a_base64(outer.digest(), newline=False)


signing_key = lru_cache(_KEYS_MAX)(SigningKey)  # cached for recently used secrets


def signature(fields: Mapping[str, str], body: bytes | None, secret_key: str) -> str:
    """Return the signature of `fields` and `body`, ignoring a signature among the fields."""
    values = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE)
    return signing_key(secret_key).sign(values.encode() + (body or b"")).decode()


def unsigned(fields: Mapping[str, str] | None) -> dict[str, str]:
    """Return the fields without credentials and signature, for code that must not see them."""
    return {
        name: value
        for name, value in (fields or {}).items()
        if name not in (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)
    }
