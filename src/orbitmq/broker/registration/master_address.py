"""Where a slave's master is: learned from the replies of name servers, or configured.

A reply without a master leaves the HA address as it is: the connection may outlive the
registration. The address for requests is forgotten then, so that metadata is not asked of a broker
that left. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.broker.registration.requests import RegistrationAnswer

log = logging.getLogger(__name__)


class MasterAddress:
    """The addresses of the master; `changed` is called when the HA address is another."""

    def __init__(self, *, configured: str | None, changed: Callable[[], None]) -> None:
        self._configured = configured
        self._changed = changed
        self.ha: str | None = configured  # where to follow it
        self.requests: str | None = None  # where to ask it

    def learn(self, answer: RegistrationAnswer) -> None:
        """Take the addresses that a name server replied with."""
        self.requests = answer.master_addr or None
        ha = self._configured or answer.ha_server_addr or self.ha
        if ha != self.ha:
            log.info("master_found ha_address=%s address=%s", ha, answer.master_addr)
            self.ha = ha
            self._changed()
