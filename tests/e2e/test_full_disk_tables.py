"""Tables that are kept in small files, on a disk that takes none: what is refused, what is in
effect all the same, and what is told.

Which of both a table does is a decision (docs/decisions/0020-changes-that-cannot-be-saved.md).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from orbitmq.admin import Admin
from orbitmq.admin.access import policy_entry
from orbitmq.common.errors import OrbitError
from orbitmq.protocol import fastjson
from orbitmq.protocol.bodies.groups import GroupConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import auth
from orbitmq.protocol.headers.groups import UpdateGroupForbiddenRequestHeader
from orbitmq.testing import LocalCluster
from support.access.people import OPERATOR, PLAIN_ACL, USERS, ask, run, settings
from support.broker.process import create_request
from support.common.waiting import wait_until
from support.store.full_disks import REASON, assert_plain, full_disk

KEY = "osPageCacheBusyTimeOutMills"
Step = Callable[[Admin, str], Awaitable[object]]

# What is done while the disk is full, and what shows whether it was done.
REFUSED: dict[str, tuple[Step, Step]] = {
    "a KV value": (
        lambda admin, _: admin.name_servers.kv_put("n", "k", "new"),
        lambda admin, _: admin.name_servers.kv_list("n"),
    ),
    "a new KV value": (
        lambda admin, _: admin.name_servers.kv_put("n", "k2", "new"),
        lambda admin, _: admin.name_servers.kv_list("n"),
    ),
    "an order configuration": (
        lambda admin, _: admin.name_servers.kv_put("ORDER_TOPIC_CONFIG", "T", "broker-a:4"),
        lambda admin, _: admin.name_servers.kv_list("ORDER_TOPIC_CONFIG"),
    ),
    "a KV value that goes": (
        lambda admin, _: admin.name_servers.kv_delete("n", "k"),
        lambda admin, _: admin.name_servers.kv_list("n"),
    ),
    "the name server's configuration": (
        lambda admin, _: admin.name_servers.update_config({"orderMessageEnable": "true"}),
        lambda admin, _: admin.name_servers.configs(),
    ),
    "the broker's configuration": (
        lambda admin, broker: admin.cluster.update_config(broker, {KEY: "4711"}),
        lambda admin, broker: _value(admin, broker),
    ),
    "a new user": (
        lambda admin, _: admin.access.create_user("carol", "secret-of-carol"),
        lambda admin, _: admin.access.users(),
    ),
    "a user": (
        lambda admin, _: admin.access.update_user("alice", password="another-one"),
        lambda admin, _: admin.access.users(),
    ),
    "a user that goes": (
        lambda admin, _: admin.access.delete_user("alice"),
        lambda admin, _: _users_and_rules(admin),
    ),
    "a rule": (
        lambda admin, _: admin.access.create_acl(
            "alice", policy_entry(["Topic:U"], ["Pub"], "Allow")
        ),
        lambda admin, _: _users_and_rules(admin),
    ),
    "a rule that goes": (
        lambda admin, _: admin.access.delete_acl("alice"),
        lambda admin, _: _users_and_rules(admin),
    ),
}


async def _value(admin: Admin, broker: str) -> object:
    return (await admin.cluster.config(broker))[KEY]


async def _users_and_rules(admin: Admin) -> object:
    return await admin.access.users(), await admin.access.acls()


async def _prepare(admin: Admin) -> None:
    await admin.name_servers.kv_put("n", "k", "old")
    await admin.name_servers.kv_put("ORDER_TOPIC_CONFIG", "T", "broker-a:1")
    await admin.access.create_user("alice", "secret-of-alice")
    await admin.access.create_acl("alice", policy_entry(["Topic:T"], ["Pub"], "Allow"))


def test_a_change_that_cannot_be_saved_is_refused_and_the_old_value_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        async with Admin(settings(mq.name_server, OPERATOR)) as admin:
            await _prepare(admin)
            for name, (change, look) in REFUSED.items():
                before = await look(admin, mq.broker_address())
                with full_disk(monkeypatch):
                    with pytest.raises(OrbitError) as refused:
                        await change(admin, mq.broker_address())
                    assert_plain(str(refused.value))
                    assert await look(admin, mq.broker_address()) == before, name
                await change(admin, mq.broker_address())
                assert await look(admin, mq.broker_address()) != before, (
                    f"{name}: what is looked at does not show it"
                )
                if name in ("a KV value that goes", "a rule that goes", "a user that goes"):
                    await _again(admin, name)

    with LocalCluster(broker=USERS, name_server_keys=USERS) as mq:
        run(scenario)


async def _again(admin: Admin, name: str) -> None:
    """Bring back what the next step needs."""
    if name == "a user that goes":
        await admin.access.create_user("alice", "secret-of-alice")
        await admin.access.create_acl("alice", policy_entry(["Topic:T"], ["Pub"], "Allow"))


def test_an_account_that_cannot_be_saved_is_refused_and_the_old_ones_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(PLAIN_ACL)
    header = auth.CreateAccessConfigRequestHeader(access_key="carol-key", secret_key="carol-secret")
    changes = [
        (RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header),
        (
            RequestCode.DELETE_ACL_CONFIG,
            auth.DeleteAccessConfigRequestHeader(access_key="alice-key"),
        ),
        (
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
            auth.UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs="10.0.0.1"),
        ),
    ]
    with LocalCluster(broker={"aclEnable": "true", "aclFolder": str(tmp_path)}) as mq:

        def accounts() -> bytes | None:
            return ask(
                mq.broker_address(),
                RemotingCommand(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG),
                OPERATOR,
            ).body

        before = accounts()
        for code, changed in changes:
            with full_disk(monkeypatch):
                refused = ask(mq.broker_address(), RemotingCommand.request(code, changed), OPERATOR)
            assert refused.code != ResponseCode.SUCCESS
            assert_plain(refused.remark)
            assert (accounts(), path.read_text()) == (before, PLAIN_ACL)
            assert (
                ask(mq.broker_address(), RemotingCommand.request(code, changed), OPERATOR).code
                == ResponseCode.SUCCESS
            )
            path.write_text(PLAIN_ACL)
            wait_until(lambda: accounts() == before, "the file that was put back counts again")


# What brokers change by themselves too: it is in effect at once, told as not saved, and saved when
# the disk takes it.
IN_EFFECT: dict[str, tuple[RemotingCommand, RemotingCommand, bytes]] = {
    "a topic": (create_request("New"), RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG), b'"New"'),
    "a group": (
        RemotingCommand.request(
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=GroupConfig("fresh").encode()
        ),
        RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        b'"fresh"',
    ),
    "a request mode": (
        RemotingCommand.request(
            RequestCode.SET_MESSAGE_REQUEST_MODE,
            body=fastjson.dumps(
                {"topic": "T", "consumerGroup": "moded", "mode": "PULL", "popShareQueueNum": 0}
            ),
        ),
        RemotingCommand(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE),
        b'"moded"',
    ),
    "what a group may not read": (
        RemotingCommand.request(
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            UpdateGroupForbiddenRequestHeader(group="forbidden", topic="T", readable=False),
        ),
        RemotingCommand(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        b'"forbidden"',
    ),
}


@pytest.mark.parametrize("name", IN_EFFECT)
def test_a_change_of_a_table_that_the_broker_changes_itself_is_in_effect_told_and_saved_later(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, look, mark = IN_EFFECT[name]
    with LocalCluster(topics=["T"]) as mq:
        assert mark not in (ask(mq.broker_address(), look).body or b"")
        with full_disk(monkeypatch):
            told = ask(mq.broker_address(), change)
            assert (told.code, told.remark) == (
                ResponseCode.SYSTEM_ERROR,
                (
                    f"the change is in effect but could not be saved: {REASON}; the broker retries,"
                    " and the change is lost if it stops first"
                ),
            )
            assert_plain(told.remark)
            assert mark in (ask(mq.broker_address(), look).body or b"")
        mq.restart()
        assert mark in (ask(mq.broker_address(), look).body or b"")
