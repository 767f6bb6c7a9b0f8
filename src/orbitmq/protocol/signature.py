"""The signature of a request, by which a server knows whose it is: HMAC-SHA1 over the values of its fields, in the order of their names,
and its body.

Numbers of the header itself (code, opaque, flag) are not signed. Pure.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - its name


def signature(fields: Mapping[str, str], body: bytes | None, secret_key: str) -> str:
    """What `fields` and `body` are signed with; a signature that is among the fields does not count."""
    values = "".join(fields[name] for name in sorted(fields) if name != SIGNATURE)
    digest = hmac.digest(secret_key.encode(), values.encode() + (body or b""), "sha1")
    return base64.b64encode(digest).decode()
