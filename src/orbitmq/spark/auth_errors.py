"""Rewords authentication errors of RocketMQ 4.9 and 5.x servers so that they name Spark's
options.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orbitmq.access.credentials import is_access_refusal
from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import RequestRefusedError


@contextmanager
def explain_auth_errors(settings: ClientSettings) -> Iterator[None]:
    """Re-raise an authentication refusal with the access key that was used and the options to
    check.
    """
    try:
        yield
    except RequestRefusedError as refused:
        if not is_access_refusal(refused):
            raise
        keys = settings.credentials
        what = "unsigned requests" if keys is None else f"accessKey {keys.access_key}"
        servers = ";".join(settings.known_name_servers())
        raise RequestRefusedError(
            refused.code,
            f"the cluster of {servers} refuses {what}: {refused.remark.rstrip('.')}; check the"
            " options accessKey and secretKey",
        ) from refused
