"""Consumer groups as operators see them: created, changed, deleted, listed, and forbidden to read a topic.

Rules live in `Groups`. An answer to a change is sent when the change is on disk. Invariant: a request that is refused changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import Offsets
from orbitmq.broker.processors.admin_answers import (
    PageSettings,
    WhenSaved,
    answer_when_saved,
    kept_json,
    read_body,
    wanted_page,
)
from orbitmq.broker.topic_names import check_group, check_topic
from orbitmq.common.errors import RequestRefused
from orbitmq.protocol.bodies.groups import GroupConfig, decode_group_list, encode_group_forbidden
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import groups as headers
from orbitmq.remoting.channel import Channel
from orbitmq.remoting.dispatch import Handler

_NO_MODES: Final = b'{"messageRequestModeMap":{}}'


class GroupProcessor:
    """200, 201, 207, 225, 352, 353 and 402.

    `when_saved` is that of subscriptionGroup.json; `deleted` hears of groups that are gone; `modes_file` says which groups pop.
    """

    def __init__(
        self,
        settings: PageSettings,
        *,
        groups: Groups,
        offsets: Offsets,
        when_saved: WhenSaved,
        deleted: Callable[[str], object],
        modes_file: Path,
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._offsets = offsets
        self._when_saved = when_saved
        self._deleted = deleted
        self._modes_file = modes_file

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.get_all_modes,
        }

    # -- changes

    def update_group(self, channel: Channel, request: RemotingCommand) -> None:
        self._groups.update(read_body(GroupConfig.decode, request))
        self._answer_when_saved(channel, request)

    def update_groups(self, channel: Channel, request: RemotingCommand) -> None:
        self._groups.update(*read_body(decode_group_list, request))
        self._answer_when_saved(channel, request)

    def delete_group(self, channel: Channel, request: RemotingCommand) -> None:
        header = headers.DeleteSubscriptionGroupRequestHeader.from_fields(request.ext_fields)
        self._groups.delete(header.group_name)
        if header.clean_offset or header.remove_offset:
            self._offsets.delete_group(header.group_name)
        self._deleted(header.group_name)
        self._answer_when_saved(channel, request)

    def forbid(self, channel: Channel, request: RemotingCommand) -> None:
        header = headers.UpdateGroupForbiddenRequestHeader.from_fields(request.ext_fields)
        group, topic = header.group, header.topic
        if header.readable is not None:
            check_group(group)
            check_topic(topic)
            self._groups.set_readable(group, topic, header.readable)
        body = encode_group_forbidden(group, topic, readable=self._groups.is_readable(group, topic))
        answer_when_saved(self._when_saved, channel, request, request.answer(ResponseCode.SUCCESS, "", body=body))

    def _answer_when_saved(self, channel: Channel, request: RemotingCommand) -> None:
        answer_when_saved(self._when_saved, channel, request, request.answer(ResponseCode.SUCCESS))

    # -- looks

    def get_all_groups(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = headers.GetAllSubscriptionGroupRequestHeader.from_fields(request.ext_fields)
        total = len(self._groups)
        page = wanted_page(self._settings, header.group_seq, header.max_group_num, header.data_version, self._groups.data_version)
        table = self._groups.page(*(page or (0, total)))
        return request.answer(
            ResponseCode.SUCCESS,
            header=headers.GetAllSubscriptionGroupResponseHeader(total_group_num=total),
            body=table.encode(),
        )

    def get_group(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Tell a group; one that is not there comes to be, where groups do."""
        name = headers.GetSubscriptionGroupConfigRequestHeader.from_fields(request.ext_fields).group
        config = self._groups.find(name)
        if config is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker, {name}")
        return request.answer(ResponseCode.SUCCESS, body=config.encode())

    def get_all_modes(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Tell which groups pop: what an original that had this store last left."""
        return request.answer(ResponseCode.SUCCESS, body=kept_json(self._modes_file) or _NO_MODES)
