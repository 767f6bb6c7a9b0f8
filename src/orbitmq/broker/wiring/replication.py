"""Builds the replication of a broker: every broker has an HA port; a slave follows its master too.

Wiring only. The quorum exists before the store, which asks it; everything else is built on the
store.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.registration.master_address import MasterAddress
from orbitmq.broker.registration.members import GroupMembers
from orbitmq.common.clock import Clock
from orbitmq.remoting.settings import client_config, server_config
from orbitmq.remoting.tls import ServerContext, client_context
from orbitmq.replication.feed import ReplicaFeed
from orbitmq.replication.follower import LogFollower
from orbitmq.replication.master_link import MasterLink
from orbitmq.replication.quorum import Quorum
from orbitmq.replication.replica_server import ReplicaServer
from orbitmq.replication.sender import SenderLimits
from orbitmq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """What a slave has in addition."""

    follower: LogFollower
    link: MasterLink
    master: MasterAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """The replication of a broker; `following` is None on a master."""

    quorum: Quorum
    feed: ReplicaFeed
    server: ReplicaServer
    members: GroupMembers
    following: Following | None

    def slow_replica(self, store: MessageStore) -> str | None:
        """Return which slave messages wait for; None if they wait for the disk."""
        if not store.flushing.waits_for_replicas:
            return None
        slowest = self.quorum.slowest
        if slowest is None:
            return "slaves, of which none is in sync,"
        behind = store.log.end_offset - slowest.acknowledged
        return f"the slave {slowest.address}, {behind} bytes behind,"


def build_replication(
    config: BrokerConfig,
    *,
    clock: Clock,
    loop: asyncio.AbstractEventLoop,
    store: MessageStore,
    quorum: Quorum,
    members: GroupMembers,
    find_master: Callable[[], object],
) -> Replication:
    """Build the replication on an existing store; nothing is started yet."""
    feed = ReplicaFeed(
        store=store,
        quorum=quorum,
        limits=lambda: _sender_limits(config),
        monotonic_ms=clock.monotonic_ms,
        call_soon=loop.call_soon,
    )
    store.add_growth_listener(feed.log_grew)
    server = ReplicaServer(
        feed,
        host=config.bind_address,
        port=config.ha_listen_port,
        tls=ServerContext(server_config(config).tls),
        is_member=members.is_allowed,
    )
    return Replication(
        quorum=quorum,
        feed=feed,
        server=server,
        members=members,
        following=_following(config, clock, store, find_master) if config.is_slave else None,
    )


def _following(
    config: BrokerConfig, clock: Clock, store: MessageStore, find_master: Callable[[], object]
) -> Following:
    follower = LogFollower(store=store, settings=config, clock=clock)
    store.add_growth_listener(follower.log_grew)
    master = MasterAddress(configured=config.ha_master_address, changed=lambda: link.wake())
    link = MasterLink(
        follower,
        address=lambda: master.ha,
        find=find_master,
        tls=lambda: _client_tls(config),
    )
    return Following(follower=follower, link=link, master=master)


def _client_tls(config: BrokerConfig) -> ssl.SSLContext | None:
    tls = client_config(config).tls
    return client_context(tls) if tls.enabled and config.ha_use_tls else None


def _sender_limits(config: BrokerConfig) -> SenderLimits:
    return SenderLimits(
        heartbeat_interval_ms=config.ha_send_heartbeat_interval,
        silence_ms_max=config.ha_housekeeping_interval,
        body_size_max=config.ha_transfer_batch_size,
        bytes_per_second_max=(
            config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
        ),
        from_last_file=config.sync_from_last_file,
    )
