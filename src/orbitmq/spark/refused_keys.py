"""What servers with access control say of keys, in a sentence that names the options; those of 4.9 and of 5.x say it each in their way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from orbitmq.client.settings import ClientSettings
from orbitmq.common.errors import RequestRefused

_OF_KEYS: Final = re.compile(
    r"AclException|signature|username cannot be null|User:\S* ?is (?:not found|disabled)|No acl config|accessKey", re.IGNORECASE
)


@contextmanager
def told_of_keys(settings: ClientSettings) -> Iterator[None]:
    """Let a refusal of who asks say with which keys that was."""
    try:
        yield
    except RequestRefused as refused:
        if not _OF_KEYS.search(refused.remark):
            raise
        keys = settings.credentials
        what = "requests that are not signed" if keys is None else f"accessKey {keys.access_key}"
        servers = ";".join(settings.known_name_servers())
        raise RequestRefused(
            refused.code, f"the cluster of {servers} refuses {what}: {refused.remark.rstrip('.')}; see the options accessKey and secretKey"
        ) from refused
