"""State of name servers besides routes: KV values, their configuration, and write permissions of
brokers.

Queries use the first name server that replies; changes are sent to every known one, because name
servers do not replicate them.
"""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.admin.calls import Calls, config_lines, succeeded
from orbitmq.common import properties
from orbitmq.common.errors import NotFoundError
from orbitmq.protocol.bodies.nameserver import decode_kv_table
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.headers.nameserver import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)


class NameServerOperations:
    """Reads and changes the state of name servers."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    # -- KV values

    async def kv_get(self, namespace: str, key: str) -> str:
        """Return one value; raise NotFoundError if there is none."""
        response = await self._calls.ask_name_server(
            RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader(namespace=namespace, key=key)
        )
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            raise NotFoundError(f"there is no key {key} in namespace {namespace}")
        return GetKVConfigResponseHeader.from_fields(succeeded(response).ext_fields).value or ""

    async def kv_list(self, namespace: str) -> dict[str, str]:
        """Return all values of a namespace; raise NotFoundError if it does not exist."""
        header = GetKVListByNamespaceRequestHeader(namespace=namespace)
        response = await self._calls.ask_name_server(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            raise NotFoundError(f"there is no namespace {namespace}")
        return decode_kv_table(succeeded(response).body or b"{}")

    async def kv_put(self, namespace: str, key: str, value: str) -> None:
        """Set one value on every name server."""
        header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        await self._calls.ask_every_name_server(RequestCode.PUT_KV_CONFIG, header)

    async def kv_delete(self, namespace: str, key: str) -> None:
        """Delete one value from every name server; a missing value is no error."""
        await self._calls.ask_every_name_server(
            RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        )

    # -- configuration

    async def configs(self) -> dict[str, dict[str, str]]:
        """Return the configuration of each name server, by address."""
        answers = await self._calls.ask_every_name_server(RequestCode.GET_NAMESRV_CONFIG)
        return {address: config_lines(response.body) for address, response in answers.items()}

    async def update_config(self, values: Mapping[str, str]) -> None:
        """Change the configuration of every name server."""
        await self._calls.ask_every_name_server(
            RequestCode.UPDATE_NAMESRV_CONFIG, body=properties.write(values).encode()
        )

    # -- write permission

    async def wipe_write_perm(self, broker_name: str) -> dict[str, int]:
        """Revoke a broker's write permission everywhere; return the changed topics by address."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._calls.ask_every_name_server(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, header
        )
        read = WipeWritePermOfBrokerResponseHeader.from_fields
        return {
            address: read(response.ext_fields).wipe_topic_count
            for address, response in answers.items()
        }

    async def add_write_perm(self, broker_name: str) -> dict[str, int]:
        """Restore a broker's write permission everywhere; return the changed topics by address."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        answers = await self._calls.ask_every_name_server(
            RequestCode.ADD_WRITE_PERM_OF_BROKER, header
        )
        read = AddWritePermOfBrokerResponseHeader.from_fields
        return {
            address: read(response.ext_fields).add_topic_count
            for address, response in answers.items()
        }
