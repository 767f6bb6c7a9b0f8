"""Requests of a name server: one method per request code, from typed header and body to the reply.

Plain functions that never wait, so a request is handled in the iteration that read it; generator
functions if the work grows with a broker's topics or with a table, in slices; coroutine functions
if a reply must wait for the disk (KV configuration) or for another environment. Refusals are raised
as RequestRefusedError. Rules live in `RouteTable`, encoded routes in `RouteAnswers`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Final

from orbitmq.common import properties
from orbitmq.common.clock import Clock
from orbitmq.common.errors import ProtocolError, RequestRefusedError, reason_of
from orbitmq.common.slices import Slices, to_be_finished
from orbitmq.nameserver.housekeeping import Connection
from orbitmq.nameserver.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from orbitmq.nameserver.notices import MinBrokerIdNotices
from orbitmq.nameserver.route_answers import RouteAnswers, within_zone
from orbitmq.nameserver.route_table import Departure, Registration, RouteTable
from orbitmq.nameserver.switches import ConfigurationText, NameServerSwitches
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.nameserver import (
    DataVersion,
    TopicList,
    TopicRouteData,
    as_object,
    encode_kv_table_in_slices,
    small_body,
)
from orbitmq.protocol.bodies.registration import RegisterBrokerBody, body_crc32
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import nameserver as headers
from orbitmq.protocol.versions import V4_9_4

_SUCCESS: Final = ResponseCode.SUCCESS  # an enum lookup costs as much as the rest of a reply
_FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
_DIGESTED_PER_SLICE: Final = 1024 * 1024
_CONFIGURATION_BYTES_MAX: Final = 128 * 1024
_ROUTE_MEMBERS_MAX: Final = 2000
# Apache does not clear its default remark when 901 succeeds.
_REMARK_LEFT: Final = "not set any response code"

# Looks up a topic's route in the production environment: its encoded body, or None.
RouteLookUp = Callable[[str], Awaitable[bytes | None]]
Handler = (
    Callable[[Connection, RemotingCommand], RemotingCommand]
    | Callable[[Connection, RemotingCommand], Slices[RemotingCommand]]
    | Callable[[Connection, RemotingCommand], Awaitable[RemotingCommand]]
)


class NameServerProcessor:
    """Handles every request of a name server. With `look_up`, unknown routes are looked up
    elsewhere.
    """

    def __init__(
        self,
        *,
        table: RouteTable,
        kv_config: KvConfig,
        notices: MinBrokerIdNotices,
        switches: NameServerSwitches,
        configuration: ConfigurationText,
        updated: Callable[[], object],
        clock: Clock,
        look_up: RouteLookUp | None = None,
    ) -> None:
        self._table = table
        self._answers = RouteAnswers(table)
        self._kv_config = kv_config
        self._notices = notices
        self._switches = switches
        self._configuration = configuration
        self._updated = updated
        self._clock = clock
        self._look_up = look_up
        self._started_ms = clock.monotonic_ms()

    def handlers(self) -> Mapping[RequestCode, Handler]:
        """Return the method of each request code."""
        return {
            RequestCode.PUT_KV_CONFIG: self.put_kv_config,
            RequestCode.GET_KV_CONFIG: self.get_kv_config,
            RequestCode.DELETE_KV_CONFIG: self.delete_kv_config,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.get_kv_table,
            RequestCode.REGISTER_BROKER: self.register_broker,
            RequestCode.UNREGISTER_BROKER: self.unregister_broker,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: (
                self.get_route if self._look_up is None else self.get_route_here_or_elsewhere
            ),
            RequestCode.GET_BROKER_CLUSTER_INFO: self.get_cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.get_member_group,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.get_all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.get_topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self.get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.get_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.get_unit_sub_not_unit_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register_topic,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_configuration,
            RequestCode.GET_NAMESRV_CONFIG: self.get_configuration,
        }

    # --- brokers

    @to_be_finished
    def register_broker(
        self, connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        header = headers.RegisterBrokerRequestHeader.from_fields(request.ext_fields)
        body = request.body or b""
        delete_missing_topics = self._switches.delete_topic_with_broker_registration
        # Brokers register every 30 seconds, mostly unchanged: the digest tells, without decoding
        # the body.
        digest = (
            blake2b(body, digest_size=16).digest()
            if len(body) <= _DIGESTED_PER_SLICE
            else (yield from _digest(body))
        )
        if not connection.is_open:  # closed between two slices: no reply is needed
            return request.reply(ResponseCode.SUCCESS)
        fingerprint: Hashable = (header, request.version, delete_missing_topics, digest)
        registered = self._table.renew(
            header.cluster_name,
            header.broker_addr,
            fingerprint,
            connection,
            self._clock.monotonic_ms(),
        )
        if registered is None:
            if header.body_crc32 and header.body_crc32 != body_crc32(body):
                raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
            content = yield from _decode_registration(header, body, request.version)
            registration = Registration(
                cluster=header.cluster_name,
                broker_name=header.broker_name,
                broker_id=header.broker_id,
                address=header.broker_addr,
                ha_server_address=header.ha_server_addr,
                connection=connection,
                data_version=content.data_version or DataVersion(timestamp=self._clock.now_ms()),
                content=content,
                enable_acting_master=header.enable_acting_master,
                zone_name=header.zone_name,
                heartbeat_timeout_ms=header.heartbeat_timeout_millis,
                delete_missing_topics=delete_missing_topics,
                fingerprint=None if content.data_version is None else fingerprint,
            )
            registered = yield from self._table.register(
                registration, self._clock.monotonic_ms(), lambda: connection.is_open
            )
        if registered.change is not None:
            self._notices.send([registered.change])
        reply_header = headers.RegisterBrokerResponseHeader(
            ha_server_addr=registered.ha_server_address, master_addr=registered.master_address
        )
        order_config = (
            self._kv_config.table(ORDER_TOPIC_CONFIG)
            if self._switches.return_order_topic_config_to_broker
            else None
        )
        reply_body = (
            None if order_config is None else (yield from encode_kv_table_in_slices(order_config))
        )
        return request.reply(ResponseCode.SUCCESS, header=reply_header, body=reply_body)

    @to_be_finished
    def unregister_broker(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        header = headers.UnRegisterBrokerRequestHeader.from_fields(request.ext_fields)
        departure = Departure(header.cluster_name, header.broker_name, header.broker_addr)
        self._notices.send((yield from self._table.unregister([departure])))
        return request.reply(ResponseCode.SUCCESS)

    def heartbeat(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = headers.BrokerHeartbeatRequestHeader.from_fields(request.ext_fields)
        self._table.heartbeat(header.cluster_name, header.broker_addr, self._clock.monotonic_ms())
        return request.reply(ResponseCode.SUCCESS)

    def query_data_version(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = headers.QueryDataVersionRequestHeader.from_fields(request.ext_fields)
        try:
            sent = (
                DataVersion.from_json(fastjson.loads(small_body(request.body)))
                if request.body
                else None
            )
        except ProtocolError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the body is not a DataVersion: {error}"
            ) from error
        self._table.heartbeat(header.cluster_name, header.broker_addr, self._clock.monotonic_ms())
        known = self._table.data_version(header.cluster_name, header.broker_addr)
        return request.reply(
            ResponseCode.SUCCESS,
            header=headers.QueryDataVersionResponseHeader(changed=known is None or known != sent),
            body=None if known is None else fastjson.dumps(known.to_json()),
        )

    def get_cluster_info(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        info = yield from self._table.cluster_info()
        return request.reply(ResponseCode.SUCCESS, body=(yield from info.encode_in_slices()))

    def get_member_group(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = headers.GetBrokerMemberGroupRequestHeader.from_fields(request.ext_fields)
        body = self._table.member_group(header.cluster_name, header.broker_name).encode()
        return request.reply(ResponseCode.SUCCESS, _REMARK_LEFT, body=body)

    @to_be_finished
    def wipe_write_perm(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        broker_name = headers.WipeWritePermOfBrokerRequestHeader.from_fields(
            request.ext_fields
        ).broker_name
        count = yield from self._table.wipe_write_perm(broker_name)
        return request.reply(
            ResponseCode.SUCCESS,
            header=headers.WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count),
        )

    @to_be_finished
    def add_write_perm(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        broker_name = headers.AddWritePermOfBrokerRequestHeader.from_fields(
            request.ext_fields
        ).broker_name
        count = yield from self._table.add_write_perm(broker_name)
        return request.reply(
            ResponseCode.SUCCESS,
            header=headers.AddWritePermOfBrokerResponseHeader(add_topic_count=count),
        )

    # --- routes

    def get_route(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        switches = self._switches
        if (
            switches.need_wait_for_service
            and self._clock.monotonic_ms() - self._started_ms
            < switches.wait_seconds_for_service * 1000
        ):
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "name server not ready")
        fields = request.ext_fields or {}
        if (
            len(fields) == 1
            and request.version >= V4_9_4
            and not (switches.support_acting_master or switches.order_message_enable)
        ):
            topic = fields.get("topic")
            body = None if topic is None else self._answers.body(topic, standard_keys=True)
        elif "topic" in fields:
            header = headers.GetRouteInfoRequestHeader.from_fields(fields)
            topic, body = header.topic, self._route_body(header, request.version)
        else:
            topic = body = None
        if body is None:
            raise _no_route(topic)
        return request.reply(_SUCCESS, body=body)

    def _route_body(self, header: headers.GetRouteInfoRequestHeader, version: int) -> bytes | None:
        """Return the encoded route for this client, on the general path."""
        switches, topic = self._switches, header.topic
        standard_keys = version >= V4_9_4 or header.accept_standard_json_only is True
        zone_name = (
            header.zone_name
            if header.zone_mode and header.zone_name and not header.zone_name.isspace()
            else None
        )
        if zone_name is None and not (
            switches.support_acting_master or switches.order_message_enable
        ):
            return self._answers.body(topic, standard_keys=standard_keys)
        order_topic_conf = (
            self._kv_config.get(ORDER_TOPIC_CONFIG, topic)
            if switches.order_message_enable
            else None
        )
        route = self._answers.route(
            topic, order_topic_conf=order_topic_conf, acting_masters=switches.support_acting_master
        )
        if route is None:
            return None
        if zone_name is None:
            return route.encode(standard_keys=standard_keys)
        # Apache does so for all clients.
        return within_zone(route, zone_name).encode(standard_keys=False)

    async def get_route_here_or_elsewhere(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        """Reply as `get_route` does; look up an unknown topic in the other environment."""
        try:
            return self.get_route(connection, request)
        except RequestRefusedError as refused:
            topic = (request.ext_fields or {}).get("topic")
            if refused.code != ResponseCode.TOPIC_NOT_EXIST or topic is None:
                raise
            assert self._look_up is not None
            body = await self._look_up(topic)
            if body is None:
                raise
        return request.reply(ResponseCode.SUCCESS, body=body)

    # --- topics

    def get_all_topics(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        _refuse_unless(self._switches.enable_all_topic_list)
        return (yield from _topic_list(request, self._table.topics()))

    def get_topics_of_cluster(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        cluster = headers.GetTopicsByClusterRequestHeader.from_fields(request.ext_fields).cluster
        _refuse_unless(self._switches.enable_topic_list)
        return (
            yield from _topic_list(request, (yield from self._table.topics_of_cluster(cluster)))
        )

    def get_system_topics(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        return (yield from _topic_list(request, self._table.system_topics()))

    def get_unit_topics(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        _refuse_unless(self._switches.enable_topic_list)
        return (yield from _topic_list(request, (yield from self._table.unit_topics())))

    def get_unit_sub_topics(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        _refuse_unless(self._switches.enable_topic_list)
        return (yield from _topic_list(request, (yield from self._table.unit_sub_topics())))

    def get_unit_sub_not_unit_topics(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        _refuse_unless(self._switches.enable_topic_list)
        return (
            yield from _topic_list(request, (yield from self._table.unit_sub_not_unit_topics()))
        )

    def delete_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = headers.DeleteTopicFromNamesrvRequestHeader.from_fields(request.ext_fields)
        self._table.delete_topic(header.topic, header.cluster_name)
        return request.reply(ResponseCode.SUCCESS)

    def register_topic(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        topic = headers.RegisterTopicRequestHeader.from_fields(request.ext_fields).topic
        if request.body:
            try:
                members = as_object(
                    (yield from fastjson.loads_in_slices(request.body)), "TopicRouteData"
                )
                if any(
                    isinstance(member, list | dict) and len(member) > _ROUTE_MEMBERS_MAX
                    for member in members.values()
                ):
                    raise ProtocolError(
                        f"a topic has queues on at most {_ROUTE_MEMBERS_MAX} brokers"
                    )
                queue_datas = TopicRouteData.from_json(members).queue_datas
            except ProtocolError as error:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR, f"the body is not a TopicRouteData: {error}"
                ) from error
            self._table.register_topic(topic, queue_datas)
        return request.reply(ResponseCode.SUCCESS)

    # --- configuration

    async def put_kv_config(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = headers.PutKVConfigRequestHeader.from_fields(request.ext_fields)
        if header.namespace is None or header.key is None:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        with _saving(header.namespace, header.key):
            if header.value is None:
                # A missing value is the same as none stored.
                await self._kv_config.delete(header.namespace, header.key)
            else:
                await self._kv_config.put(header.namespace, header.key, header.value)
        return request.reply(ResponseCode.SUCCESS)

    def get_kv_config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = headers.GetKVConfigRequestHeader.from_fields(request.ext_fields)
        value = self._kv_config.get(header.namespace, header.key)
        if value is None:
            raise RequestRefusedError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return request.reply(
            ResponseCode.SUCCESS, header=headers.GetKVConfigResponseHeader(value=value)
        )

    async def delete_kv_config(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        header = headers.DeleteKVConfigRequestHeader.from_fields(request.ext_fields)
        with _saving(header.namespace, header.key):
            await self._kv_config.delete(header.namespace, header.key)
        return request.reply(ResponseCode.SUCCESS)

    def get_kv_table(
        self, _connection: Connection, request: RemotingCommand
    ) -> Slices[RemotingCommand]:
        namespace = headers.GetKVListByNamespaceRequestHeader.from_fields(
            request.ext_fields
        ).namespace
        table = self._kv_config.table(namespace)
        if table is None:
            raise RequestRefusedError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        return request.reply(
            ResponseCode.SUCCESS, body=(yield from encode_kv_table_in_slices(table))
        )

    def update_configuration(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        if request.body:
            if len(request.body) > _CONFIGURATION_BYTES_MAX:
                raise RequestRefusedError(
                    ResponseCode.SYSTEM_ERROR,
                    f"a configuration of {len(request.body)} bytes; {_CONFIGURATION_BYTES_MAX} fit",
                )
            # Writes a small file within the iteration: rare, by an operator, and later requests
            # must see the new values.
            self._configuration.update(properties.decode(request.body))
            self._updated()
        return request.reply(ResponseCode.SUCCESS)

    def get_configuration(
        self, _connection: Connection, request: RemotingCommand
    ) -> RemotingCommand:
        return request.reply(ResponseCode.SUCCESS, body=self._configuration.render().encode())


@contextmanager
def _saving(namespace: str, key: str) -> Iterator[None]:
    """Refuse a change of the KV configuration that could not be saved."""
    try:
        yield
    except OSError as error:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the value of {namespace}/{key} could not be saved: {reason_of(error)}; nothing was"
            " changed: free or repair the disk of kvConfigPath, then try again",
        ) from error


def _decode_registration(
    header: headers.RegisterBrokerRequestHeader, body: bytes, version: int
) -> Slices[RegisterBrokerBody]:
    try:
        return (
            yield from RegisterBrokerBody.decode_in_slices(
                body, compressed=header.compressed is True, version=version
            )
        )
    except ProtocolError as error:
        raise RequestRefusedError(
            ResponseCode.SYSTEM_ERROR, f"Failed to decode RegisterBrokerBody: {error}"
        ) from error


def _digest(body: bytes) -> Slices[bytes]:
    digest = blake2b(digest_size=16)
    for start in range(0, len(body), _DIGESTED_PER_SLICE):
        if start:
            yield
        digest.update(body[start : start + _DIGESTED_PER_SLICE])
    return digest.digest()


def _refuse_unless(enabled: bool) -> None:
    if not enabled:
        raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "disable")


def _topic_list(request: RemotingCommand, topics: TopicList) -> Slices[RemotingCommand]:
    return request.reply(ResponseCode.SUCCESS, body=(yield from topics.encode_in_slices()))


def _no_route(topic: str | None) -> RequestRefusedError:
    name = "null" if topic is None else topic
    return RequestRefusedError(
        ResponseCode.TOPIC_NOT_EXIST,
        f"No topic route info in name server for the topic: {name}{_FAQ}",
    )
