"""NOTIFY_MIN_BROKER_ID_CHANGE (905): notifies the members of a broker which of them has the lowest
id now, if enabled.

Knows content and recipients; sending is up to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from orbitmq.nameserver.route_table import MinBrokerIdChange
from orbitmq.nameserver.switches import NameServerSwitches
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import NotifyMinBrokerIdChangeRequestHeader

SendOneway = Callable[[str, RemotingCommand], None]


class MinBrokerIdNotices:
    """Turns changes of the lowest id into one-way requests to the brokers' own addresses."""

    def __init__(self, switches: NameServerSwitches, send_oneway: SendOneway) -> None:
        self._switches = switches
        self._send_oneway = send_oneway

    def send(self, changes: Iterable[MinBrokerIdChange]) -> None:
        """Send each change to its recipients."""
        if not self._switches.notify_min_broker_id_changed:
            return
        for change in changes:
            header = NotifyMinBrokerIdChangeRequestHeader(
                min_broker_id=change.min_broker_id,
                min_broker_addr=change.min_broker_address,
                offline_broker_addr=change.offline_address,
                ha_broker_addr=change.ha_address,
            )
            for address in change.notify:
                self._send_oneway(
                    address,
                    RemotingCommand.request(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, header),
                )
