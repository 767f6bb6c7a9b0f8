"""What can be asked of name servers, one typed coroutine per operation.

Questions go to whichever name server answers; changes go to every one that the client knows, because they do not tell one another.
Each coroutine takes a client of its own caller's making and raises RequestRefused for an answer that is a refusal, RemoteError for none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from orbitmq.common import properties
from orbitmq.common.errors import NotFound, OrbitError, RemoteError, RemoteUnavailable, RequestRefused
from orbitmq.protocol.bodies.nameserver import ClusterInfo, TopicList, TopicRouteData, decode_kv_table
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.nameserver import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from orbitmq.remoting.client import RemotingClient

T = TypeVar("T")
TIMEOUT_MS = 3000


async def cluster_info(client: RemotingClient, timeout_ms: int = TIMEOUT_MS) -> ClusterInfo:
    """Every broker that is registered, by cluster."""
    request = RemotingCommand.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    return ClusterInfo.decode(_body(await client.invoke_name_server(request, timeout_ms)))


async def topics(client: RemotingClient, cluster: str | None = None, timeout_ms: int = TIMEOUT_MS) -> list[str]:
    """The topics of `cluster`, or all."""
    if cluster is None:
        request, switch = RemotingCommand.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER), "enableAllTopicList"
    else:
        header = GetTopicsByClusterRequestHeader(cluster=cluster)
        request, switch = RemotingCommand.request(RequestCode.GET_TOPICS_BY_CLUSTER, header), "enableTopicList"
    response = await client.invoke_name_server(request, timeout_ms)
    if response.code == ResponseCode.SYSTEM_ERROR and response.remark == "disable":
        raise RequestRefused(response.code, f"the name server gives out no such list: its configuration says {switch}=false")
    return list(TopicList.decode(_body(response)).topics)


async def topic_route(client: RemotingClient, topic: str, timeout_ms: int = TIMEOUT_MS) -> TopicRouteData:
    """Which brokers hold the queues of `topic`; NotFound says why none does."""
    header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
    response = await client.invoke_name_server(RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header), timeout_ms)
    if response.code == ResponseCode.TOPIC_NOT_EXIST:
        brokers = sorted((await cluster_info(client, timeout_ms)).brokers)
        if not brokers:
            raise NotFound(f"no route to topic {topic}: no broker is registered; start one with namesrvAddr set to this name server")
        raise NotFound(
            f"no route to topic {topic}: none of the registered brokers ({', '.join(brokers)}) has it; "
            "create it, or check its spelling with: orbitmq topic list"
        )
    return TopicRouteData.decode(_body(response))


async def kv_get(client: RemotingClient, namespace: str, key: str, timeout_ms: int = TIMEOUT_MS) -> str:
    """One value; NotFound when there is none."""
    request = RemotingCommand.request(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace=namespace, key=key))
    response = await client.invoke_name_server(request, timeout_ms)
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        raise NotFound(f"there is no key {key} in namespace {namespace}")
    return GetKVConfigResponseHeader.from_fields(_succeeded(response).ext_fields).value or ""


async def kv_list(client: RemotingClient, namespace: str, timeout_ms: int = TIMEOUT_MS) -> dict[str, str]:
    """All values of a namespace; NotFound when it does not exist."""
    header = GetKVListByNamespaceRequestHeader(namespace=namespace)
    response = await client.invoke_name_server(RemotingCommand.request(RequestCode.GET_KVLIST_BY_NAMESPACE, header), timeout_ms)
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        raise NotFound(f"there is no namespace {namespace}")
    return decode_kv_table(_body(response))


async def kv_put(client: RemotingClient, namespace: str, key: str, value: str, timeout_ms: int = TIMEOUT_MS) -> None:
    """Set one value, everywhere."""
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    await _everywhere(client, lambda: RemotingCommand.request(RequestCode.PUT_KV_CONFIG, header), timeout_ms)


async def kv_delete(client: RemotingClient, namespace: str, key: str, timeout_ms: int = TIMEOUT_MS) -> None:
    """Forget one value, everywhere."""
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    await _everywhere(client, lambda: RemotingCommand.request(RequestCode.DELETE_KV_CONFIG, header), timeout_ms)


async def configs(client: RemotingClient, timeout_ms: int = TIMEOUT_MS) -> dict[str, dict[str, str]]:
    """The configuration of each name server, by address."""
    answers = await _everywhere(client, lambda: RemotingCommand.request(RequestCode.GET_NAMESRV_CONFIG), timeout_ms)
    return {address: _properties(response.body or b"") for address, response in answers.items()}


async def update_config(client: RemotingClient, values: Mapping[str, str], timeout_ms: int = TIMEOUT_MS) -> None:
    """Change the configuration of every name server."""
    body = properties.write(values).encode()
    await _everywhere(client, lambda: RemotingCommand.request(RequestCode.UPDATE_NAMESRV_CONFIG, body=body), timeout_ms)


async def wipe_write_perm(client: RemotingClient, broker_name: str, timeout_ms: int = TIMEOUT_MS) -> dict[str, int]:
    """Take the write permission from a broker's queues, everywhere; by address, how many topics were changed."""
    header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
    answers = await _everywhere(client, lambda: RemotingCommand.request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, header), timeout_ms)
    read = WipeWritePermOfBrokerResponseHeader.from_fields
    return {address: read(response.ext_fields).wipe_topic_count for address, response in answers.items()}


async def add_write_perm(client: RemotingClient, broker_name: str, timeout_ms: int = TIMEOUT_MS) -> dict[str, int]:
    """Give the write permission back, everywhere; by address, how many topics were changed."""
    header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
    answers = await _everywhere(client, lambda: RemotingCommand.request(RequestCode.ADD_WRITE_PERM_OF_BROKER, header), timeout_ms)
    read = AddWritePermOfBrokerResponseHeader.from_fields
    return {address: read(response.ext_fields).add_topic_count for address, response in answers.items()}


async def _everywhere(client: RemotingClient, request: Callable[[], RemotingCommand], timeout_ms: int) -> dict[str, RemotingCommand]:
    """Send a request to every name server; an error, when some fail, says which did and which did not."""
    done: dict[str, RemotingCommand] = {}
    failed: dict[str, OrbitError] = {}
    for address in sorted(client.name_servers.in_order()):
        try:
            done[address] = _succeeded(await client.invoke(address, request(), timeout_ms))
        except (RemoteError, RequestRefused) as error:
            failed[address] = error
    if not failed:
        return done
    first = next(iter(failed.values()))
    text = "; ".join(str(error) if isinstance(error, RemoteError) else f"{address} refused: {error}" for address, error in failed.items())
    if done:
        text += f"; done at {', '.join(done)}"
    raise RequestRefused(first.code, text) if isinstance(first, RequestRefused) else RemoteUnavailable(text)


def _succeeded(response: RemotingCommand) -> RemotingCommand:
    if response.code != ResponseCode.SUCCESS:
        try:
            name = ResponseCode(response.code).name
        except ValueError:
            name = "a code this release does not know"
        raise RequestRefused(response.code, f"{response.remark or 'no remark'} (code {response.code}, {name})")
    return response


def _body(response: RemotingCommand) -> bytes:
    return _succeeded(response).body or b"{}"


def _properties(body: bytes) -> dict[str, str]:
    """`key=value` lines as the servers write them: without escapes."""
    return {key: value for key, _, value in (line.partition("=") for line in body.decode("utf-8", "replace").splitlines()) if key}
