"""Consumer groups as operators see them: created, changed, deleted, listed, and forbidden to read a topic.

Rules live in `Groups`. An answer to a change is sent when the change is on disk. Invariant: a request that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import Offsets
from orbitmq.broker.processors.admin_answers import (
    QUEUES_MAX,
    PageSettings,
    WhenSaved,
    answer_when_saved,
    read_body,
    read_body_in_slices,
    small,
    wanted_page,
)
from orbitmq.broker.processors.safe_answers import AnswerListener
from orbitmq.broker.request_modes import RequestModes
from orbitmq.broker.topic_names import check_group, check_topic
from orbitmq.broker.topics import Topics
from orbitmq.common.errors import RequestRefused
from orbitmq.common.slices import Slices
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.protocol.bodies.groups import GroupConfig, decode_group_list, encode_group_forbidden
from orbitmq.protocol.bodies.request_modes import POP, PULL, RequestMode
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import groups as headers
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler


class GroupListener(AnswerListener, Protocol):
    """Hears how long operators' changes of groups took, and whether they were made."""

    def group_made(self, took_ms: int, *, is_done: bool) -> None: ...


class GroupProcessor:
    """200, 201, 207, 225, 352, 353, 401 and 402.

    `when_saved` is that of subscriptionGroup.json; `deleted` hears of groups that are gone.
    """

    def __init__(
        self,
        settings: PageSettings,
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
        """Create or change groups, all or none: others see none of them until all are checked, and then all."""
        yield from self._put(channel, request, (yield from read_body_in_slices(decode_group_list, request)))

    def _put(self, channel: Channel, request: RemotingCommand, wanted: Sequence[GroupConfig]) -> Slices[None]:
        begun_ms = self._listener.monotonic_ms()
        try:
            yield from self._update(wanted)
        except RequestRefused:
            self._made(self._listener.monotonic_ms() - begun_ms, False)
            raise
        answer_when_saved(self._when_saved, channel, request, request.answer(ResponseCode.SUCCESS), self._listener, self._made)

    def _made(self, took_ms: int, is_done: bool) -> None:
        self._listener.group_made(took_ms, is_done=is_done)

    def _update(self, wanted: Sequence[GroupConfig]) -> Slices[None]:
        for config in wanted:
            if not 0 <= config.retry_queue_nums <= QUEUES_MAX:  # its retry topic would have so many
                raise RequestRefused(
                    ResponseCode.INVALID_PARAMETER,
                    f"retryQueueNums={config.retry_queue_nums} of group[{config.name}] cannot be served; give 0 to {QUEUES_MAX} queues",
                )
        yield from self._groups.update_in_slices(wanted)

    def delete_group(self, channel: Channel, request: RemotingCommand) -> Slices[None]:
        header = headers.DeleteSubscriptionGroupRequestHeader.from_fields(request.ext_fields)
        self._groups.delete(header.group_name)
        logged = self._offsets.delete_group_in_slices(header.group_name) if header.clean_offset or header.remove_offset else None
        if logged is not None:
            next(logged, None)  # the offsets go with the group, whatever becomes of the request
        self._deleted(header.group_name)
        if logged is not None:
            yield from logged
        self._answer_when_saved(channel, request)

    def forbid(self, channel: Channel, request: RemotingCommand) -> None:
        header = headers.UpdateGroupForbiddenRequestHeader.from_fields(request.ext_fields)
        group, topic = header.group, header.topic
        if header.readable is not None:
            check_group(group)
            check_topic(topic)
            self._groups.set_readable(group, topic, header.readable)
        body = encode_group_forbidden(group, topic, readable=self._groups.is_readable(group, topic))
        answer_when_saved(self._when_saved, channel, request, request.answer(ResponseCode.SUCCESS, "", body=body), self._listener)

    def set_mode(self, channel: Channel, request: RemotingCommand) -> None:
        """Have a group pull messages of a topic. Popping is refused: a group that is told to would go on pulling."""
        wanted = read_body(small(RequestMode.decode), request)
        if wanted.topic.startswith(RETRY_PREFIX):
            raise RequestRefused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode: it is that of its group's topics")
        if self._topics.find(wanted.topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{wanted.topic}] not exist; send to it, or create it")
        if wanted.mode == POP:
            raise RequestRefused(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"mode {POP} is not supported: this broker has no pop; set {PULL} for {wanted.group}",
            )
        if wanted.mode is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the mode of {wanted.group} is missing or none; say {PULL} or {POP}")
        if self._groups.find(wanted.group) is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group does not exist: {wanted.group}; create it, or check its name",
            )
        self._modes.set(wanted)
        answer_when_saved(self._modes.when_saved, channel, request, request.answer(ResponseCode.SUCCESS), self._listener)

    def _answer_when_saved(self, channel: Channel, request: RemotingCommand) -> None:
        answer_when_saved(self._when_saved, channel, request, request.answer(ResponseCode.SUCCESS), self._listener)

    # -- looks

    def get_all_groups(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Tell all groups, or a page of them, as they are at first; changes meanwhile are not in it, as its version says."""
        header = headers.GetAllSubscriptionGroupRequestHeader.from_fields(request.ext_fields)
        total = len(self._groups)
        page = wanted_page(self._settings, header.group_seq, header.max_group_num, header.data_version, self._groups.data_version)
        table = yield from self._groups.whole_in_slices() if page is None else self._groups.page_in_slices(*page)
        return request.answer(
            ResponseCode.SUCCESS,
            header=headers.GetAllSubscriptionGroupResponseHeader(total_group_num=total),
            body=(yield from table.encode_in_slices()),
        )

    def get_group(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Tell a group; one that is not there comes to be, where groups do."""
        name = headers.GetSubscriptionGroupConfigRequestHeader.from_fields(request.ext_fields).group
        config = self._groups.find(name)
        if config is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"No group in this broker, {name}; create it, or set autoCreateSubscriptionGroup=true",
            )
        return request.answer(ResponseCode.SUCCESS, body=config.encode())

    def get_all_modes(self, _channel: Channel, request: RemotingCommand) -> Slices[RemotingCommand]:
        """Tell which groups were set to pull or, at an original that had this store, to pop."""
        return request.answer(ResponseCode.SUCCESS, body=(yield from self._modes.encode()))
