"""Admin requests about consumer groups: create, update, delete, list, and forbid reading a topic.

Rules live in `Groups`. A change is confirmed once it is on disk. Invariant: a refused request
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metadata.consume_modes import RequestModes
from orbitmq.broker.metadata.consumer_offsets import Offsets
from orbitmq.broker.metadata.groups import Groups
from orbitmq.broker.metadata.topic_names import check_group, check_topic
from orbitmq.broker.metadata.topics import Topics
from orbitmq.broker.processors.admin_replies import (
    QUEUES_MAX,
    WhenSaved,
    read_body,
    read_body_in_slices,
    reply_when_saved,
    small,
    wanted_page,
)
from orbitmq.broker.produce.send_listener import ReplyListener
from orbitmq.common.errors import RefusedError, RequestRefusedError
from orbitmq.common.slices import Slices
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.protocol.bodies.groups import GroupConfig, decode_group_list, encode_group_forbidden
from orbitmq.protocol.bodies.request_modes import POP, PULL, RequestMode
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import groups as headers
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler


class GroupListener(ReplyListener, Protocol):
    """Gets the duration and outcome of changes of groups."""

    def group_made(self, took_ms: int, *, is_done: bool) -> None: ...


class GroupProcessor:
    """Serves admin requests about consumer groups.

    `when_saved` is that of subscriptionGroup.json; `deleted` is called with each deleted group.
    """

    def __init__(
        self,
        settings: BrokerConfig,
        *,
        groups: Groups,
        topics: Topics,
        offsets: Offsets,
        modes: RequestModes,
        when_saved: WhenSaved,
        deleted: Callable[[str], object],
        listener: GroupListener,
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._groups = groups
        self._topics = topics
        self._offsets = offsets
        self._modes = modes
        self._when_saved = when_saved
        self._deleted = deleted

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_all_modes,
        }

    # -- changes

    def update_group(self, channel: Channel, request: RemotingCommand) -> Slices[None]:
        yield from self._put(channel, request, [read_body(small(GroupConfig.decode), request)])

    def update_groups(self, channel: Channel, request: RemotingCommand) -> Slices[None]:
        """Create or update groups, all or none: they become visible together, after all checks."""
        yield from self._put(
            channel, request, (yield from read_body_in_slices(decode_group_list, request))
        )

    def _put(
        self, channel: Channel, request: RemotingCommand, wanted: Sequence[GroupConfig]
    ) -> Slices[None]:
        begun_ms = self._listener.monotonic_ms()
        try:
            yield from self._update(wanted)
        except (RefusedError, RequestRefusedError):
            self._made(self._listener.monotonic_ms() - begun_ms, False)
            raise
        reply_when_saved(
            self._when_saved,
            channel,
            request,
            request.reply(ResponseCode.SUCCESS),
            self._listener,
            self._made,
        )

    def _made(self, took_ms: int, is_done: bool) -> None:
        self._listener.group_made(took_ms, is_done=is_done)

    def _update(self, wanted: Sequence[GroupConfig]) -> Slices[None]:
        for config in wanted:
            if not 0 <= config.retry_queue_nums <= QUEUES_MAX:  # the size of its retry topic
                raise RequestRefusedError(
                    ResponseCode.INVALID_PARAMETER,
                    f"retryQueueNums={config.retry_queue_nums} of group[{config.name}] is out of"
                    f" range; give 0 to {QUEUES_MAX} queues",
                )
        yield from self._groups.update_in_slices(wanted)

    def delete_group(self, channel: Channel, request: RemotingCommand) -> Slices[None]:
        header = headers.DeleteSubscriptionGroupRequestHeader.from_fields(request.ext_fields)
        self._groups.delete(header.group_name)
        logged = (
            self._offsets.delete_group_in_slices(header.group_name)
            if header.clean_offset or header.remove_offset
            else None
        )
        if logged is not None:
            next(logged, None)  # drops the offsets even if the request is abandoned
        self._deleted(header.group_name)
        if logged is not None:
            yield from logged
        self._reply_when_saved(channel, request)

    def forbid(self, channel: Channel, request: RemotingCommand) -> None:
        header = headers.UpdateGroupForbiddenRequestHeader.from_fields(request.ext_fields)
        group, topic = header.group, header.topic
        if header.readable is not None:
            check_group(group)
            check_topic(topic)
            self._groups.set_readable(group, topic, header.readable)
        body = encode_group_forbidden(group, topic, readable=self._groups.is_readable(group, topic))
        reply_when_saved(
            self._when_saved,
            channel,
            request,
            request.reply(ResponseCode.SUCCESS, "", body=body),
            self._listener,
        )

    def set_mode(self, channel: Channel, request: RemotingCommand) -> None:
        """Set a group to pull mode for a topic. Refuses pop mode: the group would keep pulling."""
        wanted = read_body(small(RequestMode.decode), request)
        if wanted.topic.startswith(RETRY_PREFIX):
            raise RequestRefusedError(
                ResponseCode.NO_PERMISSION,
                "retry topic is not allowed to set mode: it follows its group's topics",
            )
        if self._topics.find(wanted.topic) is None:
            raise RequestRefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{wanted.topic}] not exist; send to it, or create it",
            )
        if wanted.mode == POP:
            raise RequestRefusedError(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"mode {POP} is not supported: this broker has no pop; set {PULL} for"
                f" {wanted.group}",
            )
        if wanted.mode is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"the mode of {wanted.group} is missing or unknown; give {PULL} or {POP}",
            )
        if self._groups.find(wanted.group) is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group does not exist: {wanted.group}; create it, or check its name",
            )
        self._modes.set(wanted)
        reply_when_saved(
            self._modes.when_saved,
            channel,
            request,
            request.reply(ResponseCode.SUCCESS),
            self._listener,
        )

    def _reply_when_saved(self, channel: Channel, request: RemotingCommand) -> None:
        reply_when_saved(
            self._when_saved, channel, request, request.reply(ResponseCode.SUCCESS), self._listener
        )

    # -- queries

    def get_all_groups(
        self, _channel: Channel, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        """Return all groups, or a page of them, as of the first slice; the version tells whether
        they have changed since.
        """
        header = headers.GetAllSubscriptionGroupRequestHeader.from_fields(request.ext_fields)
        total = len(self._groups)
        page = wanted_page(
            self._settings,
            header.group_seq,
            header.max_group_num,
            header.data_version,
            self._groups.data_version,
        )
        table = yield from (
            self._groups.whole_in_slices() if page is None else self._groups.page_in_slices(*page)
        )
        return request.reply(
            ResponseCode.SUCCESS,
            header=headers.GetAllSubscriptionGroupResponseHeader(total_group_num=total),
            body=(yield from table.encode_in_slices()),
        )

    def get_group(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return a group; it is created if missing and autoCreateSubscriptionGroup is set."""
        name = headers.GetSubscriptionGroupConfigRequestHeader.from_fields(request.ext_fields).group
        config = self._groups.find(name)
        if config is None:
            raise RequestRefusedError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker, {name}; create it, or set"
                " autoCreateSubscriptionGroup=true",
            )
        return request.reply(ResponseCode.SUCCESS, body=config.encode())

    def get_all_modes(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Return the mode of each group that has one set (pull, or pop if RocketMQ wrote this
        store).
        """
        return request.reply(ResponseCode.SUCCESS, body=(yield from self._modes.encode()))
