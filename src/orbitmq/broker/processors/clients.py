"""HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG and the queue locks: from bodies to
`MembershipService` and back. Requests of others about clients are in `client_lists`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from orbitmq.access.decisions import AccessDeniedError
from orbitmq.broker.clients.client_ids import ID_CHARS_MAX
from orbitmq.broker.clients.registry import ClientInfo, Peer
from orbitmq.broker.consume.membership import MembershipService
from orbitmq.common.errors import ProtocolError, RemoteError, RequestRefusedError
from orbitmq.common.slices import Slices
from orbitmq.protocol.bodies import clients as bodies
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import clients as headers
from orbitmq.protocol.headers.base import Header
from orbitmq.remoting.channel import Channel, channel_of
from orbitmq.remoting.dispatch import Handler

log = logging.getLogger(__name__)

T = TypeVar("T")

_NO_FIELDS: Final = Header()  # Apache RocketMQ replies to some requests with an empty header


class Access(Protocol):
    """Authenticates senders, and refuses what they may not do."""

    def user_of(self, remote_address: str, request: RemotingCommand) -> str | None: ...

    def refusal(
        self, remote_address: str, request: RemotingCommand, denied: AccessDeniedError
    ) -> RequestRefusedError: ...


class ClientProcessor:
    """Serves the requests of clients about themselves."""

    def __init__(self, service: MembershipService, access: Access) -> None:
        self._service = service
        self._access = access

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
            RequestCode.LOCK_BATCH_MQ: self.lock_queues,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock_queues,
        }

    def heartbeat(self, channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        user = self._access.user_of(channel.remote_address, request)
        data = yield from _decoded(bodies.HeartbeatData.decode_in_slices, request)
        self._service.check_groups(channel, data)
        problem = self._service.claim_id(channel, data.client_id, user)
        self._check_id(channel, request, data.client_id, user, problem)
        info = ClientInfo(data.client_id, request.language, request.version)
        full_wanted = yield from self._service.heartbeat(channel, info, data)
        header = headers.HeartbeatResponseHeader(
            support_heartbeat_v2=True, subscription_changed=full_wanted
        )
        return request.reply(ResponseCode.SUCCESS, header=header)

    def _check_id(
        self,
        channel: Channel,
        request: RemotingCommand,
        client_id: str,
        user: str | None,
        problem: str | None,
    ) -> None:
        """Refuse a request whose sender may not act as a client; nothing has changed."""
        if problem is None:
            return
        if user is None:
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, problem)
        raise self._access.refusal(
            channel.remote_address,
            request,
            AccessDeniedError(problem, who=user, resource=f"Client:{client_id[:ID_CHARS_MAX]}"),
        )

    def unregister_client(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.UnregisterClientRequestHeader.from_fields(request.ext_fields)
        self._service.unregister(
            channel, producer_group=header.producer_group, consumer_group=header.consumer_group
        )
        return request.reply(ResponseCode.SUCCESS, header=_NO_FIELDS)

    def check_client_config(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        asked = yield from _decoded(bodies.CheckClientRequestBody.decode_in_slices, request)
        if asked.subscription is not None:
            self._service.check_subscription(asked.subscription)
        return request.reply(ResponseCode.SUCCESS)

    def lock_queues(self, channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        body, user = yield from self._lock_request(channel, request)
        held = yield from self._service.lock(
            channel, body.consumer_group, body.queues, body.client_id, user
        )
        return request.reply(
            ResponseCode.SUCCESS, body=(yield from bodies.encode_locked_queues(held))
        )

    def unlock_queues(self, channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        body, user = yield from self._lock_request(channel, request)
        yield from self._service.unlock(body.consumer_group, body.queues, body.client_id, user)
        return request.reply(ResponseCode.SUCCESS)

    def _lock_request(
        self, channel: Channel, request: RemotingCommand
    ) -> Slices[tuple[bodies.LockBatchBody, str | None]]:
        """Return the queues to lock or unlock, and the user; refuse if another user holds the
        client's id.
        """
        user = self._access.user_of(channel.remote_address, request)
        body = yield from _decoded(bodies.LockBatchBody.decode_in_slices, request)
        problem = self._service.id_problem(body.client_id, user)
        self._check_id(channel, request, body.client_id, user, problem)
        return body, user


def notify_member(connection: Peer, group: str) -> None:
    """Have a member of a changed group rebalance, by NOTIFY_CONSUMER_IDS_CHANGED."""
    header = headers.NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
    try:
        channel_of(connection).invoke_oneway(
            RemotingCommand.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header)
        )
    except RemoteError as problem:
        log.warning(
            "consumer_not_notified group=%s peer=%s why=%s",
            group,
            connection.remote_address,
            problem,
        )


def _decoded(decode: Callable[[bytes | None], Slices[T]], request: RemotingCommand) -> Slices[T]:
    """Return the request's body, decoded in slices. A malformed body is refused, and the connection
    stays open.
    """
    try:
        return (yield from decode(request.body))
    except ProtocolError as problem:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the body of request {request.code} cannot be read: {problem}",
        ) from problem
