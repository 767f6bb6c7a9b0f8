"""Requests of and about clients: heartbeats, queue locks, who is connected, questions that are passed on to a client.

Also what becomes of a client without its asking: `on_close` when its connection went, `scan` for those that fell silent. Rules live in
`Producers`, `Consumers`, `QueueLocks` and `PullHold`; here they meet the configuration of groups and topics, and their effects are sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from orbitmq.broker.clients import ClientInfo, Member
from orbitmq.broker.consumers import Change, ConsumerGroup, Consumers
from orbitmq.broker.filters.consumer_filters import ConsumerFilters, expression_problem
from orbitmq.broker.groups import Groups
from orbitmq.broker.guards.subscriptions import Refusals, explained
from orbitmq.broker.long_polling import PullHold
from orbitmq.broker.producers import Producers
from orbitmq.broker.queue_locks import QueueLocks
from orbitmq.broker.settings.guards import SubscriptionConflict
from orbitmq.broker.topics import Topics
from orbitmq.common.clock import Clock
from orbitmq.common.errors import MessageIllegal, ProtocolError, RemoteError, RemoteTimeout, RequestRefused
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.message.message_id import parse_offset_id
from orbitmq.protocol.bodies import clients as bodies
from orbitmq.protocol.bodies.nameserver import PERM_READ, PERM_WRITE, TOPIC_UNIT_SUB
from orbitmq.protocol.bodies.subscriptions import ConsumeType, is_tag_type
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import clients as headers
from orbitmq.protocol.headers.base import Header
from orbitmq.protocol.signature import unsigned
from orbitmq.protocol.versions import V3_1_8_SNAPSHOT, describe
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler
from orbitmq.store.types import LogOffset

log = logging.getLogger(__name__)

T = TypeVar("T")

_NO_FIELDS: Final = Header()  # the original answers some requests with an empty header


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRules:
    """What the broker's configuration says of clients."""

    broker_name: str
    notify_consumer_ids_changed: bool = True
    reject_pull_consumers: bool = False
    enable_property_filter: bool = False
    subscription_conflict: SubscriptionConflict = SubscriptionConflict.WARN
    call_timeout_ms: int = 10_000  # of a question that is passed on to a client


class ClientProcessor:
    """Serves what clients and operators ask about clients. `record_at` is the store's."""

    def __init__(
        self,
        rules: ClientRules,
        *,
        producers: Producers,
        consumers: Consumers,
        locks: QueueLocks,
        hold: PullHold,
        groups: Groups,
        topics: Topics,
        filters: ConsumerFilters,
        record_at: Callable[[LogOffset], bytes | None],
        clock: Clock,
    ) -> None:
        self.rules = rules
        self._producers = producers
        self._consumers = consumers
        self._locks = locks
        self._hold = hold
        self._groups = groups
        self._topics = topics
        self._filters = filters
        self._record_at = record_at
        self._refusals = Refusals()
        self._clock = clock

    def handlers(self) -> Mapping[int, Handler]:
        """Which method serves which code; coroutine functions ask a client, and need a lane."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.get_consumer_list,
            RequestCode.LOCK_BATCH_MQ: self.lock_queues,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock_queues,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producers,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.get_running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
        }

    # --- coming and going -----------------------------------------------------------------------------------------

    def heartbeat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        data = _decoded(bodies.HeartbeatData.decode, request)
        info = ClientInfo(data.client_id, request.language, request.version)
        now_ms = self._clock.monotonic_ms()
        full_wanted = data.fingerprint == 0
        refused = []
        for consumer in data.consumers:
            if (conflict := self._conflict(channel, info, data, consumer)) is not None:
                refused.append(conflict)
                continue
            full_wanted |= self._consumer_heard(channel, info, data, consumer, now_ms)
        for group in data.producer_groups:
            self._producers.register(group, channel, info, now_ms)
        if refused:  # the other groups of the client are served
            raise RequestRefused(ResponseCode.NO_PERMISSION, "; ".join(refused))
        header = headers.HeartbeatResponseHeader(support_heartbeat_v2=True, subscription_changed=full_wanted)
        return request.answer(ResponseCode.SUCCESS, header=header)

    def _conflict(self, channel: Channel, info: ClientInfo, heartbeat: bodies.HeartbeatData, data: bodies.ConsumerData) -> str | None:
        """Why a client may not be a member with the subscriptions that it has, if conflicts are refused; None when it may."""
        known = self._consumers.find(data.group)
        left_out = heartbeat.without_sub and heartbeat.fingerprint != 0
        if left_out or known is None or self.rules.subscription_conflict is not SubscriptionConflict.REFUSE:
            return None
        found = known.conflicts_with(info.client_id, data.subscriptions)
        if not found:
            self._refusals.remove(channel, data.group)
            return None
        why = f"client {info.client_id} is kept out: {explained(data.group, found)} (subscriptionConflict=refuse)"
        if self._refusals.add(data.group, channel, why):
            log.warning("consumer_refused group=%s client=%s why='%s'", data.group, info.client_id, why)
        return why

    def _consumer_heard(
        self, channel: Channel, info: ClientInfo, heartbeat: bodies.HeartbeatData, data: bodies.ConsumerData, now_ms: int
    ) -> bool:
        """Take one group of a heartbeat in; whether the next heartbeat should bring subscriptions, if this one need not have."""
        if self.rules.reject_pull_consumers and data.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return False
        config = self._groups.find(data.group)
        if config is None:
            log.warning(
                "consumer_refused group=%s client=%s why=there is no such group and it may not be created", data.group, info.client_id
            )
            return False
        known = self._consumers.find(data.group)
        left_out = heartbeat.without_sub and heartbeat.fingerprint != 0
        topics = [wanted.topic for wanted in data.subscriptions]
        if left_out and known is not None:
            topics = list(known.subscriptions)
        # A group that nobody told the subscriptions of must hear them: the original goes without until the client subscribes anew.
        full_wanted = left_out if known is None else known.fingerprint != heartbeat.fingerprint
        configs = map(self._topics.find, topics)
        self._topics.for_send_back(
            RETRY_PREFIX + data.group,
            config.retry_queue_nums,
            PERM_READ | PERM_WRITE,
            order=any(found is not None and found.order for found in configs),
            sys_flag=TOPIC_UNIT_SUB if data.unit_mode else 0,
        )
        change = self._consumers.register(
            channel,
            info,
            data,
            now_ms,
            fingerprint=heartbeat.fingerprint,
            keep_subscriptions=left_out,
            notifies=config.notify_consumer_ids_changed_enable and self.rules.notify_consumer_ids_changed,
            warns=self.rules.subscription_conflict is SubscriptionConflict.WARN,
        )
        if not left_out:
            self._filters.heard(data.group, data.subscriptions)
        self._tell(change)
        return full_wanted

    def unregister_client(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.UnregisterClientRequestHeader.from_fields(request.ext_fields)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, channel)
        if header.consumer_group is not None:
            self._tell(self._consumers.unregister(header.consumer_group, channel))
        return request.answer(ResponseCode.SUCCESS, header=_NO_FIELDS)

    def on_close(self, channel: Channel) -> None:
        """Take away whoever was reached by a connection that is gone, and what waits on it; its queue locks stay until they are over."""
        self._producers.on_close(channel)
        for change in self._consumers.on_close(channel):
            self._tell(change)
        self._hold.drop(channel)
        self._refusals.remove(channel)

    def hear_all(self) -> None:
        """Take a sign of life from whoever is connected."""
        now_ms = self._clock.monotonic_ms()
        self._producers.hear_all(now_ms)
        self._consumers.hear_all(now_ms)

    def scan(self) -> None:
        """Take away the clients that fell silent and close their connections; called every SCAN_PERIOD_MS."""
        now_ms = self._clock.monotonic_ms()
        expired = self._consumers.scan(now_ms)
        for channel in dict.fromkeys((*self._producers.scan(now_ms), *expired.channels)):
            channel.close("its client sent no heartbeat for too long")
        for change in expired.changes:
            self._tell(change)
        self._locks.scan(now_ms)

    def _tell(self, change: Change) -> None:
        """Let members rebalance; one that cannot be told will do so by itself within seconds. A group that is gone filters nothing."""
        if self._consumers.find(change.group) is None:
            self._filters.left(change.group)
        for channel in change.notify:
            header = headers.NotifyConsumerIdsChangedRequestHeader(consumer_group=change.group)
            try:
                channel.invoke_oneway(RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header))
            except RemoteError as problem:
                log.warning("consumer_not_notified group=%s peer=%s why=%s", change.group, channel.remote_address, problem)

    def check_client_config(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        wanted = _decoded(bodies.CheckClientRequestBody.decode, request).subscription
        if wanted is not None and wanted.expression_type is not None and not is_tag_type(wanted.expression_type):
            if not self.rules.enable_property_filter:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"The broker does not support consumer to filter message by {wanted.expression_type}; "
                    "set enablePropertyFilter=true in its configuration, or subscribe by tags",
                )
            problem = expression_problem(wanted.expression_type, wanted.sub_string)
            if problem is not None:
                raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, problem)
        return request.answer(ResponseCode.SUCCESS)

    # --- queue locks ----------------------------------------------------------------------------------------------

    def lock_queues(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        body = _decoded(bodies.LockBatchBody.decode, request)
        held = self._locks.lock(body.consumer_group, body.queues, body.client_id, self._clock.monotonic_ms())
        return request.answer(ResponseCode.SUCCESS, body=bodies.encode_locked_queues(held))

    def unlock_queues(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        body = _decoded(bodies.LockBatchBody.decode, request)
        self._locks.unlock(body.consumer_group, body.queues, body.client_id)
        return request.answer(ResponseCode.SUCCESS)

    # --- who is connected -----------------------------------------------------------------------------------------

    def get_consumer_list(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        name = headers.GetConsumerListByGroupRequestHeader.from_fields(request.ext_fields).consumer_group
        group = self._consumers.find(name)
        if group is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {name}: none is online", header=_NO_FIELDS)
        return request.answer(ResponseCode.SUCCESS, header=_NO_FIELDS, body=bodies.encode_consumer_ids(group.client_ids))

    def get_consumer_connections(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        name = headers.GetConsumerConnectionListRequestHeader.from_fields(request.ext_fields).consumer_group
        group = self._consumers.find(name)
        if group is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online: start a consumer of it, or check the name"
            )
        body = bodies.ConsumerConnection(
            connections=list(map(_connection, group.members.values())),
            subscriptions=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
            conflicts=tuple(self.conflicts(group)),
        )
        return request.answer(ResponseCode.SUCCESS, body=body.encode())

    def conflicts(self, group: ConsumerGroup) -> list[str]:
        """What is wrong with the subscriptions of a group, for operators."""
        is_off = self.rules.subscription_conflict is SubscriptionConflict.OFF
        return [] if is_off else [*group.conflicts, *self._refusals.of(group.name)]

    def get_producer_connections(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        name = headers.GetProducerConnectionListRequestHeader.from_fields(request.ext_fields).producer_group
        members = self._producers.members(name)
        if not members:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist: no producer of it is online")
        return request.answer(ResponseCode.SUCCESS, body=bodies.encode_producer_connection(map(_connection, members.values())))

    def get_all_producers(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        wall_ms = self._clock.now_ms() - self._clock.monotonic_ms()
        producers = {
            group: [
                bodies.ProducerInfo(
                    client_id=member.info.client_id,
                    remote_ip=f"/{member.channel.remote_address}",
                    language=member.info.language.name,
                    version=member.info.version,
                    last_update_timestamp=wall_ms + member.heard_ms,
                )
                for member in members
            ]
            for group, members in self._producers.groups().items()
        }
        return request.answer(ResponseCode.SUCCESS, body=bodies.encode_producer_table(producers))

    # --- questions to a client ------------------------------------------------------------------------------------

    async def get_running_info(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.GetConsumerRunningInfoRequestHeader.from_fields(request.ext_fields)
        return await self._call_consumer(request, header.consumer_group, header.client_id, request.ext_fields or {}, request.body)

    async def consume_directly(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.ConsumeMessageDirectlyResultRequestHeader.from_fields(request.ext_fields)
        record = self._record_of(header.msg_id)
        topic = self._topics.find(header.topic) if header.topic else None
        group = self._groups.table.get(header.consumer_group)
        told = replace(
            header,
            broker_name=self.rules.broker_name,
            topic_sys_flag=header.topic_sys_flag if topic is None else topic.sys_flag,
            group_sys_flag=header.group_sys_flag if group is None else group.sys_flag,
        )
        fields = {**(request.ext_fields or {}), **told.to_fields()}
        return await self._call_consumer(request, header.consumer_group, header.client_id, fields, record)

    def _record_of(self, message_id: str | None) -> bytes:
        """The stored bytes of the message that an operator wants consumed."""
        try:
            offset = parse_offset_id(message_id or "").log_offset
        except MessageIllegal as problem:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"msgId must be the offset id of a message: {problem}") from problem
        record = self._record_at(LogOffset(offset))
        if record is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"no message with id {message_id} is stored here: it was deleted, or another broker has it; nothing was consumed",
            )
        return record

    async def _call_consumer(
        self, request: RemotingCommand, group: str, client_id: str | None, fields: dict[str, str], body: bytes | None
    ) -> RemotingCommand:
        """Pass a question on to a member of a group, but not the asker's signature; what it answers is the answer."""
        found = self._consumers.find(group)
        member = None if found is None or client_id is None else found.member(client_id)
        if member is None:
            online = "nobody of the group is" if found is None else f"online are {', '.join(found.client_ids)}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online; {online}")
        if member.info.version < V3_1_8_SNAPSHOT:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The Consumer <{client_id}> Version <{describe(member.info.version)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT",
            )
        timeout_ms = self.rules.call_timeout_ms
        try:
            return await member.channel.invoke(RemotingCommand(request.code, ext_fields=unsigned(fields), body=body), timeout_ms)
        except RemoteTimeout as problem:
            raise RequestRefused(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{group}> <{client_id}> Timeout: {problem}; it is connected from {member.channel.remote_address} but busy or "
                "stuck, and may still act on the request: look at its log and its threads, then ask again",
            ) from problem
        except RemoteError as problem:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"invoke consumer <{group}> <{client_id}> Exception: {problem}; ask again once the client is connected",
            ) from problem


def _connection(member: Member) -> bodies.Connection:
    info = member.info
    return bodies.Connection(info.client_id, member.channel.remote_address, info.language.name, info.version)


def _decoded(decode: Callable[[bytes | None], T], request: RemotingCommand) -> T:
    """The request's body; one that cannot be read is refused, and the connection lives on."""
    try:
        return decode(request.body)
    except ProtocolError as problem:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the body of request {request.code} cannot be read: {problem}") from problem
