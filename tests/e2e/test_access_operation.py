"""Access control as operators meet it: files that change, bad peers, requests about accounts, name
servers, load balancers, the shell.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.frames import Request
from interop.frames import ask as ask_raw
from orbitmq import Credentials, Message, Producer, RequestRefusedError, SendFailedError
from orbitmq.admin import Admin
from orbitmq.admin.access import TargetServers, policy_entry
from orbitmq.protocol import frame
from orbitmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import auth
from orbitmq.protocol.headers.nameserver import GetRouteInfoRequestHeader
from orbitmq.testing import LocalCluster
from support.access.people import (
    ALICE,
    BOB,
    OPERATOR,
    PLAIN_ACL,
    SECRETS,
    USERS,
    ask,
    run,
    settings,
    signed,
)
from support.cli.commands import Shell
from support.common.waiting import wait_until

CONFIG = RemotingCommand(RequestCode.GET_BROKER_CONFIG)


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[tuple[LocalCluster, Path]]:
    """A cluster with accounts, and their file."""
    path = tmp_path / "plain_acl.yml"
    path.write_text(PLAIN_ACL)
    with LocalCluster(broker={"aclEnable": "true", "aclFolder": str(tmp_path)}) as mq:
        yield mq, path


@pytest.fixture
def users() -> Iterator[LocalCluster]:
    with LocalCluster(broker=USERS, name_server_keys=USERS) as mq:
        yield mq


def send(mq: LocalCluster, topic: str, who: Credentials | None) -> None:
    async def main() -> None:
        async with Producer(settings(mq.name_server, who)) as producer:
            await producer.send(Message(topic, b"x"))

    run(main)


def asked(
    mq: LocalCluster, request: RemotingCommand, who: Credentials | None = OPERATOR
) -> RemotingCommand:
    return ask(mq.broker_address(), request, who)


# -- files


def test_a_changed_file_counts_while_the_broker_runs(
    accounts: tuple[LocalCluster, Path], caplog: pytest.LogCaptureFixture
) -> None:
    mq, path = accounts
    send(mq, "Allowed", ALICE)
    with pytest.raises(SendFailedError, match="No default permission for topic:Other"):
        send(mq, "Other", ALICE)
    path.write_text(PLAIN_ACL.replace("Allowed=", "Other="))

    def is_allowed() -> bool:
        try:
            send(mq, "Other", ALICE)
        except SendFailedError:
            return False
        return True

    wait_until(is_allowed)
    caplog.clear()
    path.write_text("accounts: broken")
    wait_until(lambda: "account_file_broken" in caplog.text)
    send(mq, "Other", ALICE)


# -- requests about accounts


def test_accounts_are_made_listed_changed_and_deleted_by_requests(
    accounts: tuple[LocalCluster, Path],
) -> None:
    mq, path = accounts
    made = auth.CreateAccessConfigRequestHeader(
        access_key=BOB.access_key, secret_key=BOB.secret_key, topic_perms="B=PUB,C=SUB"
    )
    assert asked(mq, RemotingCommand.request(50, made)).code == ResponseCode.SUCCESS
    send(mq, "B", BOB)
    with pytest.raises(SendFailedError, match="No default permission for topic:C"):
        send(mq, "C", BOB)
    version = asked(mq, RemotingCommand.request(52)).ext_fields
    assert version is not None
    assert json.loads(version["version"])["counter"] == 1
    assert list(json.loads(version["allAclFileVersion"])) == [str(path)]
    assert (version["brokerName"], version["brokerAddr"]) == ("broker-a", mq.broker_address())
    listed = json.loads(asked(mq, RemotingCommand.request(54)).body or b"{}")
    assert [each["accessKey"] for each in listed["plainAccessConfigs"]] == [
        OPERATOR.access_key,
        ALICE.access_key,
        BOB.access_key,
    ]
    white = auth.UpdateGlobalWhiteAddrsConfigRequestHeader(
        global_white_addrs="10.0.0.{1,2},127.0.0.1"
    )
    assert asked(mq, RemotingCommand.request(53, white)).code == ResponseCode.SUCCESS
    assert ask(mq.broker_address(), CONFIG).code == ResponseCode.SUCCESS, (
        "everybody at a white address may"
    )
    none = auth.UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs="")
    assert ask(mq.broker_address(), RemotingCommand.request(53, none)).code == ResponseCode.SUCCESS
    assert ask(mq.broker_address(), CONFIG).code == ResponseCode.SYSTEM_ERROR
    gone = auth.DeleteAccessConfigRequestHeader(access_key=BOB.access_key)
    assert asked(mq, RemotingCommand.request(51, gone)).code == ResponseCode.SUCCESS
    with pytest.raises(SendFailedError, match="No acl config for bob-the-key"):
        send(mq, "B", BOB)


@pytest.mark.parametrize(
    ("request_", "code", "why"),
    [
        (
            RemotingCommand.request(
                50, auth.CreateAccessConfigRequestHeader(access_key="short", secret_key="short-too")
            ),
            209,
            "longer than 6",
        ),
        (
            RemotingCommand.request(
                50,
                auth.CreateAccessConfigRequestHeader(access_key="long-enough", secret_key="sesame"),
            ),
            209,
            "longer than 6",
        ),
        (
            RemotingCommand.request(
                50,
                auth.CreateAccessConfigRequestHeader(
                    access_key="long-enough", secret_key="sesame-open", topic_perms="A=FLY"
                ),
            ),
            209,
            "Parse resource permission error for A=FLY",
        ),
        (
            RemotingCommand.request(
                51, auth.DeleteAccessConfigRequestHeader(access_key="nobody-key")
            ),
            210,
            "no account has the accessKey",
        ),
        (
            RemotingCommand.request(
                53, auth.UpdateGlobalWhiteAddrsConfigRequestHeader(global_white_addrs="nowhere")
            ),
            211,
            "'nowhere' is not an address",
        ),
        (
            RemotingCommand.request(
                53,
                auth.UpdateGlobalWhiteAddrsConfigRequestHeader(
                    global_white_addrs="*", acl_file_full_path="/etc/passwd"
                ),
            ),
            211,
            "/etc/passwd is not one of the account files",
        ),
        (RemotingCommand.request(3005), 1, "there are no users here"),
    ],
)
def test_a_request_about_accounts_that_cannot_be_done_changes_nothing(
    accounts: tuple[LocalCluster, Path], request_: RemotingCommand, code: int, why: str
) -> None:
    mq, path = accounts
    before = path.read_bytes()
    answer = asked(mq, request_)
    assert answer.code == code
    assert why in (answer.remark or "")
    assert "sesame" not in (answer.remark or "")
    assert path.read_bytes() == before
    assert "Need admin permission" in (
        asked(mq, RemotingCommand(request_.code), ALICE).remark or ""
    )


# -- bad peers


def test_a_peer_that_sends_nonsense_gets_nothing_and_costs_nothing(users: LocalCluster) -> None:
    at = users.broker_address()
    long_text = "x" * 60_000
    for fields in (
        {"AccessKey": long_text, "Signature": long_text},
        {"AccessKey": OPERATOR.access_key, "Signature": "é𝄞"},
        {"AccessKey": "\ud800", "Signature": "x"},
        {f"k{number}": "v" for number in range(5_000)},
        {"AccessKey": "", "Signature": ""},
    ):
        answer = ask_raw(at, Request(310, fields, b"body"))
        assert answer.code == ResponseCode.NO_PERMISSION, answer
        assert len(answer.remark or "") < 1000
    replayed = signed(
        RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=true"), OPERATOR
    )
    replayed.body = b"traceOn=false"
    assert ask(at, replayed).remark == "check signature failed."
    host, port = at.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 30) as peer:
        peer.sendall(b"\x00\x00\x00\x10nonsense")
        peer.shutdown(socket.SHUT_WR)
        peer.settimeout(30)
        assert peer.recv(1) == b""
    assert asked(users, CONFIG).code == ResponseCode.SUCCESS


def test_one_way_requests_are_checked_too(users: LocalCluster) -> None:
    """Nobody hears that they are refused, and nothing comes of them."""
    host, port = users.broker_address().rsplit(":", 1)
    with socket.create_connection((host, int(port)), 30) as peer:
        change = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=false", flag=2)
        peer.sendall(frame.encode(change))
        peer.sendall(frame.encode(RemotingCommand(RequestCode.GET_BROKER_CONFIG, opaque=7)))
        peer.settimeout(30)
        assert peer.recv(1) != b""  # the answer to the second
    assert b"traceOn=true" in (asked(users, CONFIG).body or b"")


# -- load balancers


@pytest.mark.parametrize(
    ("trusted", "is_believed"), [("", False), ("127.0.0.0/8", True), ("10.0.0.1", False)]
)
def test_where_a_peer_says_that_it_is_counts_if_it_is_trusted(
    tmp_path: Path, trusted: str, is_believed: bool
) -> None:
    (tmp_path / "plain_acl.yml").write_text("globalWhiteRemoteAddresses: [203.0.113.9]\n")
    keys = {"aclEnable": "true", "aclFolder": str(tmp_path), "trustedProxies": trusted}
    with LocalCluster(broker=keys) as mq:
        host, port = mq.broker_address().rsplit(":", 1)
        with socket.create_connection((host, int(port)), 30) as peer:
            peer.sendall(b"PROXY TCP4 203.0.113.9 127.0.0.1 4711 10911\r\n" + frame.encode(CONFIG))
            peer.settimeout(30)
            answer = b""
            while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4]):
                answer += peer.recv(65536)
        decoded = frame.decode(bytearray(answer), 0, len(answer))
        assert (decoded.code == ResponseCode.SUCCESS) is is_believed


# -- name server


def test_a_name_server_lets_nobody_in_who_does_not_sign(users: LocalCluster) -> None:
    send(users, "T", OPERATOR)
    route = RemotingCommand.request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="T")
    )
    assert ask(users.name_server, route).remark == "username cannot be null."
    assert ask(users.name_server, route, BOB).remark == "User:bob-the-key is not found."
    assert ask(users.name_server, route, OPERATOR).code == ResponseCode.SUCCESS
    with pytest.raises((SendFailedError, RequestRefusedError), match="username cannot be null"):
        send(users, "T", None)


@pytest.mark.parametrize(
    ("cluster", "code"), [("attic", ResponseCode.SUCCESS), ("cellar", ResponseCode.NO_PERMISSION)]
)
def test_rules_of_a_name_server_are_about_the_cluster_that_its_key_names(
    cluster: str, code: int
) -> None:
    with LocalCluster(broker=USERS, name_server_keys={**USERS, "clusterName": cluster}) as mq:
        user = UserInfo(username=BOB.access_key, password=BOB.secret_key)
        made = RemotingCommand(
            RequestCode.AUTH_CREATE_USER,
            ext_fields={"username": BOB.access_key},
            body=user.encode(),
        )
        assert ask(mq.name_server, made, OPERATOR).code == ResponseCode.SUCCESS
        entry = PolicyEntryInfo(resource="Cluster:attic", actions=("All",), decision="Allow")
        rules = AclInfo(policies=[PolicyInfo(policy_type="Custom", entries=(entry,))])
        subject = {"subject": f"User:{BOB.access_key}"}
        ruled = RemotingCommand(
            RequestCode.AUTH_CREATE_ACL, ext_fields=subject, body=rules.encode()
        )
        assert ask(mq.name_server, ruled, OPERATOR).code == ResponseCode.SUCCESS
        assert (
            ask(mq.name_server, RemotingCommand(RequestCode.GET_NAMESRV_CONFIG), BOB).code == code
        )


def test_users_are_kept_in_the_folder_that_is_named(tmp_path: Path) -> None:
    with LocalCluster(broker={**USERS, "authConfigPath": str(tmp_path)}, name_server_keys=USERS):
        assert OPERATOR.access_key in (tmp_path / "users.json").read_text()


def test_a_broker_without_the_right_keys_is_not_registered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wrong = {
        **USERS,
        "innerClientAuthenticationCredentials": '{"accessKey":"operator","secretKey":"guessed-it"}',
    }
    with LocalCluster(broker=wrong, name_server_keys=USERS) as mq:
        found = ask(mq.name_server, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO), OPERATOR)
        assert b"broker-a" not in (found.body or b"")
    assert "check signature failed" in caplog.text


# -- the shell


def test_users_and_rules_are_kept_by_the_shell(users: LocalCluster, tmp_path: Path) -> None:
    shell = Shell(users.name_server)
    keys = ("--access-key", OPERATOR.access_key, "--secret-key", OPERATOR.secret_key)
    for words in (("access", "user", "list"), ("message", "send", "T", "hello")):
        told = shell.fails(*words)
        assert "username cannot be null" in told
        assert (
            "give --access-key and --secret-key, or --key-file, or set ORBITMQ_ACCESS_KEY and"
            " ORBITMQ_SECRET_KEY" in told
        )
    assert (
        shell.run(
            "access", "user", "create", ALICE.access_key, "--password", ALICE.secret_key, *keys
        ).exit_code
        == 0
    )
    assert (
        shell.run(
            "access", "user", "create", "asked", *keys, stdin="pass-word\npass-word\n"
        ).exit_code
        == 0
    )
    assert (
        shell.run(
            "access",
            "user",
            "create",
            ALICE.access_key,
            "--password",
            ALICE.secret_key,
            "--at-name-servers",
            *keys,
        ).exit_code
        == 0
    )
    listed = shell.run("access", "user", "list", "-o", "json", *keys)
    assert [(each["user"], each["type"]) for each in json.loads(listed.stdout)] == [
        (ALICE.access_key, "Normal"),
        ("asked", "Normal"),
        (OPERATOR.access_key, "Super"),
    ]
    assert not any(secret in listed.output for secret in (*SECRETS, "pass-word"))
    rule = ("--resource", "Topic:T", "--resource", "Group:*", "--action", "Pub", "--action", "sub")
    for place in ((), ("--at-name-servers",)):
        assert (
            shell.run("access", "acl", "create", ALICE.access_key, *rule, *place, *keys).exit_code
            == 0
        )
    assert "'Fly' is null or illegal" in shell.fails(
        "access", "acl", "create", "x", "--resource", "Topic:T", "--action", "Fly", *keys
    )

    key_file = tmp_path / "tools.yml"
    key_file.write_text(f"accessKey: {ALICE.access_key}\nsecretKey: {ALICE.secret_key}\n")
    assert shell.run("message", "send", "T", "hello", "--key-file", str(key_file)).exit_code == 0
    assert "no permission to access Topic:U" in shell.fails(
        "message", "send", "U", "hello", "--key-file", str(key_file)
    )
    shell.environment |= {
        "ORBITMQ_ACCESS_KEY": ALICE.access_key,
        "ORBITMQ_SECRET_KEY": ALICE.secret_key,
    }
    assert shell.run("message", "send", "T", "hello").exit_code == 0
    first, second = json.loads(
        shell.run("access", "acl", "list", "--user", "alice", "-o", "json", *keys).stdout
    )
    assert (first["user"], first["resource"], first["actions"], first["decision"]) == (
        ALICE.access_key,
        "Topic:T",
        ["Pub", "Sub"],
        "Allow",
    )
    assert second["resource"] == "Group:*"
    assert (
        shell.run(
            "access",
            "acl",
            "update",
            ALICE.access_key,
            *rule[:2],
            "--action",
            "Pub",
            "--deny",
            *keys,
        ).exit_code
        == 0
    )
    assert "the decision is deny" in shell.fails("message", "send", "T", "hello")
    assert (
        shell.run(
            "access", "acl", "delete", ALICE.access_key, "--resource", "Topic:T", *keys
        ).exit_code
        == 0
    )
    assert "no matched policies" in shell.fails("message", "send", "T", "hello")
    assert (
        shell.run(
            "access", "user", "update", ALICE.access_key, "--status", "disable", *keys
        ).exit_code
        == 0
    )
    assert "is disabled" in shell.fails("message", "send", "T", "hello")
    assert shell.run("access", "user", "delete", ALICE.access_key, *keys).exit_code == 0
    assert "there is no user alice-key" in shell.fails(
        "access", "user", "delete", ALICE.access_key, *keys
    )
    del shell.environment["ORBITMQ_SECRET_KEY"]
    assert "one key is missing" in shell.fails("access", "user", "list", code=2)


def test_whoever_may_look_at_users_lists_them_without_their_passwords(users: LocalCluster) -> None:
    async def scenario() -> None:
        async with Admin(settings(users.name_server, OPERATOR)) as admin:
            for where in (TargetServers(), TargetServers(name_servers=True)):
                await admin.access.create_user(ALICE.access_key, ALICE.secret_key, where=where)
                await admin.access.create_acl(
                    ALICE.access_key, policy_entry(["Cluster:*"], ["Get"], "Allow"), where
                )
        async with Admin(settings(users.name_server, ALICE)) as admin:
            (found,) = (await admin.access.users()).values()
        assert [(user.name, user.password) for user in found] == [
            (ALICE.access_key, ""),
            (OPERATOR.access_key, ""),
        ]

    run(scenario)


def test_what_a_broker_did_not_do_is_not_done_at_half(users: LocalCluster) -> None:
    async def scenario() -> None:
        async with Admin(settings(users.name_server, OPERATOR)) as admin:
            await admin.access.create_user("a-user", "a-password")
            with pytest.raises(RequestRefusedError, match="The user is existed"):
                await admin.access.create_user("a-user", "a-password")
            found = await admin.access.users()
            assert [[user.name for user in of_one] for of_one in found.values()] == [
                ["a-user", OPERATOR.access_key]
            ]

    run(scenario)
