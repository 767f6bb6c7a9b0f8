"""Verifies that a request is signed with a secret. Pure.

Clients up to 4.9.3 did not sign the field that marks a query by unique id, later ones do: both are
accepted. Comparisons take constant time.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from orbitmq.protocol.signature import SIGNATURE, signature

UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"


def is_signed(fields: Mapping[str, str], body: bytes | None, secret: str) -> bool:
    """Whether the signature among the fields is that of `secret`."""
    given = fields.get(SIGNATURE)
    if not given:
        return False
    claimed = given.encode(errors="surrogatepass")
    if hmac.compare_digest(signature(fields, body, secret).encode(), claimed):
        return True
    if UNIQUE_KEY_QUERY not in fields:
        return False
    older = {name: value for name, value in fields.items() if name != UNIQUE_KEY_QUERY}
    return hmac.compare_digest(signature(older, body, secret).encode(), claimed)
