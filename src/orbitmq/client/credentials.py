"""Who a client is to servers with access control: what `access` has for every caller, under the name that clients know."""

from __future__ import annotations

from orbitmq.access.credentials import Credentials, RequestSigner

__all__ = ["Credentials", "RequestSigner"]
