"""Users and policies as of 5.x: what they allow, the requests that change them, and the files that
follow.
"""

from __future__ import annotations

import errno
import logging
import os
import stat
from pathlib import Path

import pytest

from orbitmq.access.audit import AUDIT, LINES_MAX
from orbitmq.access.control import AccessControl
from orbitmq.access.credentials import Credentials
from orbitmq.access.policies import Acl, Decision, Policy, PolicyEntry, PolicyType, ResourcePattern
from orbitmq.access.requests import Action, Resource, group, topic
from orbitmq.access.user_store import UserStore
from orbitmq.access.users import User, UserStatus, acl_of, new_user
from orbitmq.common import atomic_file
from orbitmq.common.config.access import AccessSettings
from orbitmq.common.errors import ConfigurationError, CorruptFileError, RequestRefusedError
from orbitmq.common.slices import Slices, finish
from orbitmq.protocol.bodies.access import (
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    decode_acls,
    decode_users,
)
from orbitmq.protocol.bodies.clients import CheckClientRequestBody
from orbitmq.protocol.bodies.subscriptions import SQL92, SubscriptionData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import auth
from orbitmq.protocol.headers.base import Header
from orbitmq.protocol.headers.named_resources import ResourceKind
from support.access.people import ALICE, BOB, OPERATOR, SECRETS, signed

PEER = "10.0.0.1:4711"
STARS_INSIDE = ("Topic:a*b*", "Topic:a*b", "Topic:**", "Topic:*a", "*:a")
WAITING = (
    "SCHEDULE_TOPIC_XXXX",
    "rmq_sys_wheel_timer",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
)
CLUSTER = Resource(ResourceKind.CLUSTER, "C")


class Server:
    """Access control of a server, asked without a socket."""

    def __init__(self, folder: Path, **keys: object) -> None:
        first = f'{{"username":"{OPERATOR.access_key}","password":"{OPERATOR.secret_key}"}}'
        settings = AccessSettings(
            **{
                "authentication_enabled": True,
                "authorization_enabled": True,
                "init_authentication_user": first,
                **keys,
            }  # type: ignore[arg-type]
        )
        self.control = AccessControl(settings, cluster="C", users=folder, now_ms=lambda: 0)
        self.control.load()

    def ask(
        self, request: RemotingCommand, who: Credentials | None = OPERATOR, peer: str = PEER
    ) -> RemotingCommand:
        """What comes of a request: the answer of its handler, if it has one here, or the
        refusal.
        """
        try:
            for guard in self.control.guards:
                guard.before(peer, signed(request, who))
            handler = self.control.of_users.handlers().get(request.code)
            answer = (
                request.reply(ResponseCode.SUCCESS) if handler is None else handler(None, request)
            )
            return answer if isinstance(answer, RemotingCommand) else finish(answer)
        except RequestRefusedError as refused:
            return request.reply(refused.code, refused.remark)

    def tell(
        self, code: int, header: Header, body: bytes | None = None, who: Credentials = OPERATOR
    ) -> tuple[int, str | None]:
        answer = self.ask(RemotingCommand.request(code, header, body), who)
        return answer.code, answer.remark

    def add(self, who: Credentials, *entries: PolicyEntryInfo, type: str = "Normal") -> None:
        info = UserInfo(username=who.access_key, password=who.secret_key, user_type=type)
        header = auth.CreateUserRequestHeader(username=who.access_key)
        assert self.tell(RequestCode.AUTH_CREATE_USER, header, info.encode()) == (0, None)
        if entries:
            self.rule(who, *entries)

    def rule(self, who: Credentials, *entries: PolicyEntryInfo, policy: str = "Custom") -> None:
        info = AclInfo(policies=[PolicyInfo(policy_type=policy, entries=entries)])
        header = auth.CreateAclRequestHeader(subject=f"User:{who.access_key}")
        assert self.tell(RequestCode.AUTH_CREATE_ACL, header, info.encode()) == (0, None)


@pytest.fixture
def server(tmp_path: Path) -> Server:
    return Server(tmp_path)


def entry(
    resource: str, *actions: str, decision: str = "Allow", sources: tuple[str, ...] = ()
) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=resource, actions=actions, decision=decision, source_ips=sources or None
    )


def send(name: str) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.SEND_MESSAGE_V2, ext_fields={"a": "p", "b": name}, body=b"body"
    )


# -- policies


@pytest.mark.parametrize(
    ("entries", "resource", "actions", "decision"),
    [
        ([], topic("T"), [Action.PUB], None),
        ([entry("Topic:T", "Pub")], topic("T"), [Action.PUB], Decision.ALLOW),
        ([entry("Topic:T", "Pub")], topic("T"), [Action.SUB], None),
        ([entry("Topic:T", "All")], topic("T"), [Action.SUB], Decision.ALLOW),
        ([entry("Topic:T", "Pub")], group("T"), [Action.PUB], None),
        (
            [entry("topic:T", "pub", decision="allow")],
            topic("T"),
            [Action.PUB, Action.GET],
            Decision.ALLOW,
        ),
        (
            [entry("*", "Pub"), entry("Topic:*", "Pub", decision="Deny")],
            topic("T"),
            [Action.PUB],
            Decision.DENY,
        ),
        (
            [entry("Topic:*", "Pub", decision="Deny"), entry("Topic:a*", "Pub")],
            topic("abc"),
            [Action.PUB],
            Decision.ALLOW,
        ),
        (
            [entry("Topic:a*", "Pub"), entry("Topic:ab*", "Pub", decision="Deny")],
            topic("abc"),
            [Action.PUB],
            Decision.DENY,
        ),
        (
            [entry("Topic:abcd*", "Pub", decision="Deny"), entry("Topic:abc", "Pub")],
            topic("abc"),
            [Action.PUB],
            Decision.ALLOW,
        ),
        (
            [entry("Topic:ab*", "Sub", decision="Deny"), entry("Topic:*", "Pub")],
            topic("abc"),
            [Action.PUB],
            Decision.ALLOW,
        ),
        (
            [entry("Topic:T", "Pub", decision="Deny", sources=("10.0.0.0/8",)), entry("*", "Pub")],
            topic("T"),
            [Action.PUB],
            Decision.DENY,
        ),
        ([entry("Topic:T", "Pub", sources=("192.168.0.0/16",))], topic("T"), [Action.PUB], None),
        ([entry("Cluster:C", "Get")], CLUSTER, [Action.GET], Decision.ALLOW),
        *(
            ([entry(wide, "Sub")], topic(each), [Action.SUB], None)
            for each in WAITING
            for wide in ("*", "Topic:*", f"Topic:{each[:4]}*")
        ),
        *(
            ([entry(f"Topic:{each}", "Sub")], topic(each), [Action.SUB], Decision.ALLOW)
            for each in WAITING
        ),
    ],
)
def test_the_most_specific_entry_that_matches_decides(
    entries: list[PolicyEntryInfo],
    resource: Resource,
    actions: list[Action],
    decision: Decision | None,
) -> None:
    acl = (
        acl_of(AclInfo(subject="User:a", policies=[PolicyInfo(entries=entries)]))
        if entries
        else Acl("a", ())
    )
    assert acl.decide(resource, frozenset(actions), "10.0.0.1") is decision


def test_the_default_policy_counts_when_nothing_in_the_custom_one_matches() -> None:
    policies = [
        PolicyInfo(
            policy_type="Default", entries=[entry("Topic:T", "Pub"), entry("Topic:U", "Pub")]
        ),
        PolicyInfo(
            policy_type="Custom",
            entries=[entry("Topic:*", "Pub", decision="Deny", sources=("10.9.0.0/16",))],
        ),
    ]
    acl = acl_of(AclInfo(subject="User:a", policies=policies))
    assert acl.decide(topic("T"), frozenset({Action.PUB}), "10.0.0.1") is Decision.ALLOW
    assert acl.decide(topic("T"), frozenset({Action.PUB}), "10.9.0.1") is Decision.DENY


def test_between_equals_a_denial_wins() -> None:
    pattern = ResourcePattern.parse("Topic:T")
    entries = [
        PolicyEntry(pattern, frozenset({Action.PUB}), decision)
        for decision in (Decision.ALLOW, Decision.DENY)
    ]
    for order in (entries, entries[::-1]):
        acl = Acl("a", (Policy(PolicyType.CUSTOM, tuple(order)),))
        assert acl.decide(topic("T"), frozenset({Action.PUB}), "10.0.0.1") is Decision.DENY


@pytest.mark.parametrize(
    "text", ["*", "Topic:*", "Topic:a*", "Topic:a", "Group:%RETRY%x", "Cluster:C", "Namespace:n"]
)
def test_a_resource_is_written_as_it_was_read(text: str) -> None:
    assert str(ResourcePattern.parse(text)) == text


@pytest.mark.parametrize("text", ["", None, "Topic", "Topic:", "Queue:x", ":x", "Any:x"])
def test_what_is_no_resource_is_refused(text: str | None) -> None:
    with pytest.raises(ValueError, match="is null or illegal"):
        ResourcePattern.parse(text)


# -- who is let in


def test_a_user_that_is_disabled_or_deleted_is_out_at_once(server: Server) -> None:
    server.add(ALICE, entry("Topic:T", "Pub"))
    assert server.ask(send("T"), ALICE).code == ResponseCode.SUCCESS
    header = auth.UpdateUserRequestHeader(username=ALICE.access_key)
    assert server.tell(
        RequestCode.AUTH_UPDATE_USER, header, UserInfo(user_status="disable").encode()
    ) == (0, None)
    answer = server.ask(send("T"), ALICE)
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "User:alice-key is disabled.",
    )
    assert server.tell(
        RequestCode.AUTH_UPDATE_USER,
        header,
        UserInfo(user_status="enable", password="other").encode(),
    ) == (0, None)
    assert server.ask(send("T"), ALICE).remark == "check signature failed."
    assert (
        server.ask(send("T"), Credentials(ALICE.access_key, "other")).code == ResponseCode.SUCCESS
    )
    assert server.tell(
        RequestCode.AUTH_DELETE_USER, auth.DeleteUserRequestHeader(username=ALICE.access_key)
    ) == (0, None)
    assert server.ask(send("T"), ALICE).remark == "User:alice-key is not found."
    server.add(ALICE)
    assert "no matched policies" in (server.ask(send("T"), ALICE).remark or ""), (
        "the rules went with the user"
    )


def test_a_rule_counts_from_the_next_request_on(server: Server) -> None:
    server.add(ALICE, entry("Topic:T", "Pub"))
    for _ in range(2):  # the second is remembered
        assert server.ask(send("T"), ALICE).code == ResponseCode.SUCCESS
    server.rule(ALICE, entry("Topic:T", "Pub", decision="Deny"))
    denied = (
        "User:alice-key has no permission to access Topic:T from 10.0.0.1, the decision is deny."
    )
    assert server.ask(send("T"), ALICE).remark == denied
    header = auth.DeleteAclRequestHeader(
        subject="User:alice-key", policy_type="Custom", resource="Topic:T"
    )
    assert server.tell(RequestCode.AUTH_DELETE_ACL, header) == (0, None)
    assert (server.ask(send("T"), ALICE).remark or "").endswith("no matched policies.")
    assert server.tell(RequestCode.AUTH_DELETE_ACL, header) == (16, "The acl is not exist.")


def test_what_is_remembered_of_one_host_does_not_count_for_another(server: Server) -> None:
    server.add(ALICE, entry("Topic:T", "Pub", sources=("10.0.0.0/8",)))
    assert server.ask(send("T"), ALICE).code == ResponseCode.SUCCESS
    assert server.ask(send("T"), ALICE, "192.168.0.1:1").code == ResponseCode.NO_PERMISSION


def test_consumers_of_a_group_send_to_its_retry_topic(server: Server) -> None:
    server.add(
        ALICE, entry("Topic:*", "Pub"), entry("Group:mine", "Sub"), entry("Group:other", "Pub")
    )
    assert server.ask(send("%RETRY%mine"), ALICE).code == ResponseCode.SUCCESS
    assert "no permission to access Group:other" in (
        server.ask(send("%RETRY%other"), ALICE).remark or ""
    )


def test_codes_of_the_white_lists_are_not_looked_at(tmp_path: Path) -> None:
    server = Server(tmp_path, authentication_whitelist="28, 105", authorization_whitelist="26")
    server.add(ALICE)
    assert server.ask(RemotingCommand(28), None).code == ResponseCode.SUCCESS
    assert server.ask(RemotingCommand(26), None).remark == "username cannot be null."
    assert server.ask(RemotingCommand(26), ALICE).code == ResponseCode.SUCCESS
    assert server.ask(RemotingCommand(25), ALICE).code == ResponseCode.NO_PERMISSION
    with pytest.raises(
        ConfigurationError,
        match="authenticationWhitelist cannot be used: 'x' is not a request code",
    ):
        Server(tmp_path, authentication_whitelist="28,x")


def test_without_authorization_whoever_signs_may_do_everything(tmp_path: Path) -> None:
    server = Server(tmp_path, authorization_enabled=False)
    server.add(ALICE)
    assert server.ask(RemotingCommand(25), ALICE).code == ResponseCode.SUCCESS
    assert server.ask(RemotingCommand(25), BOB).code == ResponseCode.NO_PERMISSION


def test_what_has_no_rule_needs_a_super_user(server: Server) -> None:
    server.add(ALICE, entry("*", "All"))
    assert server.ask(RemotingCommand(25), ALICE).code == ResponseCode.SUCCESS
    answer = server.ask(RemotingCommand(4711), ALICE)
    assert (answer.code, answer.remark) == (
        16,
        "User:alice-key has no permission for request 4711 from 10.0.0.1, only super users have.",
    )
    assert server.ask(RemotingCommand(4711), OPERATOR).code == ResponseCode.SUCCESS


def test_a_message_that_names_no_topic_needs_the_cluster(server: Server) -> None:
    server.add(ALICE, entry("Topic:*", "All"))
    by_id = RemotingCommand(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": "0"})
    assert "no permission to access Cluster:C" in (server.ask(by_id, ALICE).remark or "")


# -- requests that change users


def test_only_super_users_make_or_change_super_users(server: Server) -> None:
    server.add(ALICE, entry("Cluster:C", "All"))
    boss = UserInfo(password="password", user_type="Super").encode()
    refused = (1, "The super user can only be create by super user")
    assert (
        server.tell(
            RequestCode.AUTH_CREATE_USER, auth.CreateUserRequestHeader(username="boss"), boss, ALICE
        )
        == refused
    )
    refused = (1, "The super user can only be update by super user")
    mine = auth.UpdateUserRequestHeader(username=ALICE.access_key)
    assert (
        server.tell(RequestCode.AUTH_UPDATE_USER, mine, UserInfo(user_type="super").encode(), ALICE)
        == refused
    )
    operator = auth.UpdateUserRequestHeader(username=OPERATOR.access_key)
    assert server.tell(
        RequestCode.AUTH_UPDATE_USER, operator, UserInfo(password="mine").encode(), ALICE
    ) == (16, refused[1])
    gone = auth.DeleteUserRequestHeader(username=OPERATOR.access_key)
    assert server.tell(RequestCode.AUTH_DELETE_USER, gone, None, ALICE) == (16, refused[1])
    assert server.tell(
        RequestCode.AUTH_CREATE_USER, auth.CreateUserRequestHeader(username="boss"), boss
    ) == (0, None)


def test_the_only_enabled_super_user_stays_one(server: Server) -> None:
    header = auth.UpdateUserRequestHeader(username=OPERATOR.access_key)
    changes = (
        (3002, header, UserInfo(user_status="disable").encode()),
        (3002, header, UserInfo(user_type="Normal").encode()),
        (3003, auth.DeleteUserRequestHeader(username=OPERATOR.access_key), None),
    )
    server.add(ALICE)
    refused = (
        16,
        (
            "operator is the last enabled super user, and only super users can change users; create"
            " another one first"
        ),
    )
    for change in changes:
        assert server.tell(*change) == refused
        assert server.ask(RemotingCommand(25)).code == ResponseCode.SUCCESS
    assert server.tell(
        3002, header, UserInfo(password=OPERATOR.secret_key, user_status="enable").encode()
    ) == (0, None)
    server.add(BOB, type="Super")
    disabled = UserInfo(user_status="disable").encode()
    assert server.tell(3002, auth.UpdateUserRequestHeader(username=BOB.access_key), disabled) == (
        0,
        None,
    )
    assert [server.tell(*change) for change in changes] == [refused] * 3, (
        "one that is disabled does not count"
    )
    enabled = UserInfo(user_status="enable").encode()
    assert server.tell(3002, auth.UpdateUserRequestHeader(username=BOB.access_key), enabled) == (
        0,
        None,
    )
    assert server.tell(*changes[0]) == (0, None)
    assert server.tell(*changes[2], who=BOB) == (0, None)


@pytest.mark.parametrize(
    ("code", "header", "body", "answer"),
    [
        (3001, auth.CreateUserRequestHeader(), b"{}", (29, "The username is blank")),
        (
            3001,
            auth.CreateUserRequestHeader(username="x"),
            b"{}",
            (16, "password can not be blank"),
        ),
        (
            3001,
            auth.CreateUserRequestHeader(username="x"),
            b'{"password":"secret',
            (1, "the body of request 3001 cannot be read; nothing was changed"),
        ),
        (
            3001,
            auth.CreateUserRequestHeader(username="operator"),
            b'{"password":"p"}',
            (16, "The user is existed"),
        ),
        (3002, auth.UpdateUserRequestHeader(username="x"), b"{}", (16, "The user is not exist")),
        (3003, auth.DeleteUserRequestHeader(username="x"), None, (0, None)),
        (3004, auth.GetUserRequestHeader(username=" "), None, (29, "The username is blank")),
        (
            3006,
            auth.CreateAclRequestHeader(subject="User:operator"),
            None,
            (16, "The policies is empty."),
        ),
        (
            3006,
            auth.CreateAclRequestHeader(subject="operator"),
            b'{"policies":[{"entries":[{"resource":"*","actions":["Pub"],"decision":"Allow"}]}]}',
            (16, "The subject 'operator' is illegal; write User:name"),
        ),
        (3009, auth.GetAclRequestHeader(subject="User:x"), None, (16, "The subject is not exist.")),
        (3009, auth.GetAclRequestHeader(subject="User:operator"), None, (0, None)),
    ],
)
def test_what_cannot_be_done_is_said_and_changes_nothing(
    server: Server,
    tmp_path: Path,
    code: int,
    header: Header,
    body: bytes | None,
    answer: tuple[int, str | None],
) -> None:
    before = (tmp_path / "users.json").read_bytes()
    assert server.tell(code, header, body) == answer
    assert (tmp_path / "users.json").read_bytes() == before
    assert not (tmp_path / "acls.json").exists()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (entry("Queue:x", "Pub"), "The resource 'Queue:x' is null or illegal"),
        *(
            (
                entry(name, "Pub"),
                f"The resource '{name}' is illegal: a * is allowed at the end only",
            )
            for name in STARS_INSIDE
        ),
        (entry("Topic:x"), "The actions is empty."),
        (entry("Topic:x", "Any"), "The actions can not be Any."),
        (entry("Topic:x", "Fly"), "The Action 'Fly' is null or illegal"),
        (entry("Topic:x", "Pub", decision="Maybe"), "The Decision 'Maybe' is null or illegal"),
        (
            entry("Topic:x", "Pub", sources=("nowhere",)),
            "'nowhere' is neither an address nor a network",
        ),
    ],
)
def test_a_rule_that_is_illegal_is_refused(server: Server, bad: PolicyEntryInfo, why: str) -> None:
    body = AclInfo(policies=[PolicyInfo(entries=[entry("Topic:fine", "Pub"), bad])]).encode()
    code, remark = server.tell(
        RequestCode.AUTH_CREATE_ACL, auth.CreateAclRequestHeader(subject="User:operator"), body
    )
    assert code == ResponseCode.NO_PERMISSION
    assert why in (remark or "")
    assert server.control.users is not None
    assert server.control.users.acls == {}


def test_lists_are_filtered(server: Server) -> None:
    server.add(ALICE, entry("Topic:a", "Pub"), entry("Group:b", "Sub"))
    server.add(BOB, entry("Topic:b", "Pub"))
    users = server.ask(
        RemotingCommand.request(3005, auth.ListUsersRequestHeader(filter="key"))
    ).body
    assert [user.username for user in decode_users(users or b"[]")] == [
        ALICE.access_key,
        BOB.access_key,
    ]
    assert (
        server.ask(RemotingCommand.request(3005, auth.ListUsersRequestHeader(filter="nobody"))).body
        is None
    )
    acls = server.ask(
        RemotingCommand.request(
            3010, auth.ListAclsRequestHeader(subject_filter="", resource_filter="Topic:")
        )
    ).body
    found = {
        acl.subject: [each.resource for policy in acl.policies for each in policy.entries]
        for acl in decode_acls(acls or b"[]")
    }
    assert found == {"User:alice-key": ["Topic:a"], "User:bob-the-key": ["Topic:b"]}
    acls = server.ask(
        RemotingCommand.request(3010, auth.ListAclsRequestHeader(subject_filter="bob"))
    ).body
    assert [acl.subject for acl in decode_acls(acls or b"[]")] == ["User:bob-the-key"]


def test_passwords_are_told_to_super_users_only(server: Server) -> None:
    server.add(ALICE, entry("Cluster:*", "Get"))
    name = OPERATOR.access_key
    for who, seen in (
        (OPERATOR, {ALICE.access_key: ALICE.secret_key, name: OPERATOR.secret_key}),
        (ALICE, {}),
    ):
        listed = (
            server.ask(
                RemotingCommand.request(3005, auth.ListUsersRequestHeader(filter="")), who
            ).body
            or b"[]"
        )
        assert {
            user.username: user.password for user in decode_users(listed) if user.password
        } == seen
        found = UserInfo.decode(
            server.ask(
                RemotingCommand.request(3004, auth.GetUserRequestHeader(username=name)), who
            ).body
            or b"{}"
        )
        assert found == UserInfo(
            username=name, password=seen.get(name), user_type="Super", user_status="enable"
        )


def test_nobody_is_a_super_user_by_its_name_alone(tmp_path: Path) -> None:
    server = Server(tmp_path, authentication_whitelist="3001,3005")
    claimed = RemotingCommand(3005, ext_fields={"AccessKey": OPERATOR.access_key})
    assert [user.password for user in decode_users(server.ask(claimed, None).body or b"[]")] == [
        None
    ]
    fields = {"AccessKey": OPERATOR.access_key, "username": "boss"}
    made = RemotingCommand(
        3001, ext_fields=fields, body=UserInfo(password="password", user_type="Super").encode()
    )
    assert server.ask(made, None).remark == "The super user can only be create by super user"


def _listed(control: AccessControl) -> Slices[RemotingCommand]:
    answer = control.of_users.handlers()[3005](None, RemotingCommand(3005))
    assert not isinstance(answer, RemotingCommand)
    return answer


def test_there_are_no_users_where_access_control_is_off(tmp_path: Path) -> None:
    control = AccessControl(AccessSettings(), cluster="C", users=tmp_path, now_ms=lambda: 0)
    control.load()
    assert control.guards == []
    with pytest.raises(
        RequestRefusedError, match="access control is off; set authenticationEnabled=true"
    ):
        finish(_listed(control))
    assert list(tmp_path.iterdir()) == []


def test_accounts_of_49_are_not_taken_for_no_access_control(tmp_path: Path) -> None:
    control = AccessControl(
        AccessSettings(), cluster="C", users=tmp_path / "users", accounts=tmp_path, now_ms=lambda: 0
    )
    with pytest.raises(
        RequestRefusedError,
        match=(
            r"accounts in 4\.9 style \(aclEnable=true\).*for users set"
            r" authenticationEnabled=true"
        ),
    ):
        finish(_listed(control))


# -- files


def test_users_and_rules_are_there_after_a_restart_and_readable_for_their_owner_only(
    server: Server, tmp_path: Path
) -> None:
    server.add(
        ALICE,
        entry("Topic:a*", "Pub", "Sub", sources=("10.0.0.0/8",)),
        entry("*", "All", decision="Deny"),
    )
    again = Server(tmp_path)
    assert server.control.users is not None
    assert again.control.users is not None
    assert again.control.users.users == server.control.users.users
    assert again.control.users.acls == server.control.users.acls
    for name in ("users.json", "acls.json", "users.json.bak"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_change_that_cannot_be_written_did_not_happen(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_file, "write", full)
    header = auth.CreateUserRequestHeader(username="x")
    answer = server.tell(
        RequestCode.AUTH_CREATE_USER, header, UserInfo(password="password").encode()
    )
    assert answer == (1, "it could not be saved: No space left on device; nothing was changed")
    assert server.control.users is not None
    assert set(server.control.users.users) == {OPERATOR.access_key}


def test_a_damaged_file_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "users.json").write_text('[{"username":"x"')
    with pytest.raises(CorruptFileError, match=r"users.json is damaged"):
        UserStore(tmp_path).load()


def test_the_first_user_is_made_once_and_keeps_the_password_that_it_got_since(
    server: Server, tmp_path: Path
) -> None:
    header = auth.UpdateUserRequestHeader(username=OPERATOR.access_key)
    assert server.tell(
        RequestCode.AUTH_UPDATE_USER, header, UserInfo(password="new-password").encode()
    ) == (0, None)
    again = Server(tmp_path)
    assert again.ask(RemotingCommand(25), OPERATOR).remark == "check signature failed."
    assert (
        again.ask(RemotingCommand(25), Credentials(OPERATOR.access_key, "new-password")).code
        == ResponseCode.SUCCESS
    )


@pytest.mark.parametrize(
    "key", ["init_authentication_user", "inner_client_authentication_credentials"]
)
@pytest.mark.parametrize(
    "text",
    ["hush-hush", '{"username":"hush-hush"}', "[]", '{"accessKey":1,"secretKey":"hush-hush"}'],
)
def test_credentials_that_cannot_be_read_are_not_repeated(
    tmp_path: Path, key: str, text: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AccessControl(AccessSettings(**{key: text}), cluster="C", users=tmp_path, now_ms=lambda: 0)  # type: ignore[arg-type]
    assert "hush-hush" not in str(caught.value)
    assert "cannot be used: write it as" in str(caught.value)


def test_rules_that_were_kept_with_a_star_inside_are_read_and_can_be_deleted(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path)
    server.add(ALICE, entry("Topic:kept", "Pub"))
    written = (tmp_path / "acls.json").read_text()
    other, third = written.replace("kept", "a*b*"), written.replace("kept", "a*b")
    for text, read in ((other, "Topic:a*"), (third, "Topic:a*b")):
        (tmp_path / "acls.json").write_text(text)
        server = Server(tmp_path)
        assert server.control.users is not None
        ((only,),) = (
            policy.entries for policy in server.control.users.acls[ALICE.access_key].policies
        )
        assert str(only.resource) == read
        unread = auth.DeleteAclRequestHeader(
            subject="User:alice-key", policy_type="Custom", resource="Topic:a*c*"
        )
        code, remark = server.tell(RequestCode.AUTH_DELETE_ACL, unread)
        assert (code, "a * is allowed at the end only" in (remark or "")) == (16, True)
        header = auth.DeleteAclRequestHeader(
            subject="User:alice-key", policy_type="Custom", resource=read
        )
        assert server.tell(RequestCode.AUTH_DELETE_ACL, header) == (0, None)
        assert server.control.users.acls == {}


# -- audit


def test_a_denial_is_one_line_of_the_audit_log_and_no_secret_is_ever_logged(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        server.add(ALICE, entry("Topic:T", "Pub"))
        header = auth.UpdateUserRequestHeader(username=ALICE.access_key)
        server.tell(
            RequestCode.AUTH_UPDATE_USER, header, UserInfo(password=ALICE.secret_key).encode()
        )
        server.tell(
            RequestCode.AUTH_CREATE_USER,
            auth.CreateUserRequestHeader(username="x\ny"),
            b'{"password":"bob-secret"',
        )
        caplog.clear()
        server.ask(send("Denied"), ALICE)
        server.ask(send("T"), Credentials(ALICE.access_key, BOB.secret_key))
        server.ask(send("T"), Credentials("no\nbody", BOB.secret_key))
        server.ask(send("T"), None)
        lines = [record.getMessage() for record in caplog.records if record.name == AUDIT.name]
        assert lines == [
            (
                "access_denied who='alice-key' from=10.0.0.1:4711 request=SEND_MESSAGE_V2"
                " resource='Topic:Denied' why='User:alice-key has no permission to access"
                " Topic:Denied from 10.0.0.1, no matched policies.'"
            ),
            (
                "access_denied who='alice-key' from=10.0.0.1:4711 request=SEND_MESSAGE_V2"
                " resource=- why='check signature failed.'"
            ),
            (
                "access_denied who='no\\nbody' from=10.0.0.1:4711 request=SEND_MESSAGE_V2"
                " resource=- why='User:no\\nbody is not found.'"
            ),
            (
                "access_denied who=- from=10.0.0.1:4711 request=SEND_MESSAGE_V2 resource=-"
                " why='username cannot be null.'"
            ),
        ]
    assert not any(secret in caplog.text for secret in SECRETS)
    assert not any(
        secret in repr((server.control.users and server.control.users.users, ALICE))
        for secret in SECRETS
    )


def test_a_peer_that_is_refused_all_the_time_does_not_fill_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(1_000):
        assert server.ask(send("T"), None).remark == "username cannot be null."
    assert len(caplog.records) == LINES_MAX


def test_texts_of_peers_are_cut_in_the_log_and_in_answers(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    answer = server.ask(send("T"), Credentials("k" * 100_000, "x"))
    assert len(answer.remark or "") < 1000
    assert len(caplog.text) < 2000


def test_a_user_is_changed_by_what_is_said_of_it() -> None:
    user = new_user(UserInfo(username="u", password="p"))
    assert user == User("u", "p")
    assert user.changed(UserInfo(user_status="DISABLE", password=" ")).status is UserStatus.DISABLE
    assert user.changed(UserInfo(password="q")).password == "q"
    with pytest.raises(ValueError, match="write one of Super, Normal"):
        user.changed(UserInfo(user_type="Boss"))


EXPRESSION = "a > 1"


@pytest.mark.parametrize(
    ("group_name", "subscription", "code"),
    [
        ("g", SubscriptionData("Allowed", EXPRESSION, expression_type=SQL92), ResponseCode.SUCCESS),
        (
            "g",
            SubscriptionData("Other", EXPRESSION, expression_type=SQL92),
            ResponseCode.NO_PERMISSION,
        ),
        (
            "other",
            SubscriptionData("Allowed", EXPRESSION, expression_type=SQL92),
            ResponseCode.NO_PERMISSION,
        ),
        ("g", SubscriptionData("", EXPRESSION, expression_type=SQL92), ResponseCode.NO_PERMISSION),
        (
            "",
            SubscriptionData("Allowed", EXPRESSION, expression_type=SQL92),
            ResponseCode.NO_PERMISSION,
        ),
        (None, SubscriptionData("", EXPRESSION, expression_type=SQL92), ResponseCode.NO_PERMISSION),
        (None, None, ResponseCode.NO_PERMISSION),
    ],
)
def test_an_expression_is_compiled_only_for_a_user_who_may_consume_its_group_and_topic(
    server: Server, group_name: str | None, subscription: SubscriptionData | None, code: int
) -> None:
    server.add(ALICE, entry("Topic:Allowed", "Sub"), entry("Group:g", "Sub"))
    body = CheckClientRequestBody("c", group_name, subscription).encode()
    answer = server.ask(RemotingCommand(RequestCode.CHECK_CLIENT_CONFIG, body=body), ALICE)
    assert answer.code == code


class SomeWrites:
    """A disk that does not take the small files of these numbers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, fails_on: tuple[int, ...]) -> None:
        self.count = 0
        original = atomic_file.write

        def write(path: Path, data: bytes, *, new_mode: int) -> None:
            self.count += 1
            if self.count in fails_on:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            original(path, data, new_mode=new_mode)

        monkeypatch.setattr(atomic_file, "write", write)


def test_a_user_that_cannot_be_deleted_keeps_its_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = UserStore(tmp_path)
    store.create_user(UserInfo(username="alice", password="secret"))
    store.put_acl(
        Acl(
            "alice",
            (
                Policy(
                    PolicyType.CUSTOM,
                    (
                        PolicyEntry(
                            ResourcePattern.parse("Topic:T"),
                            frozenset({Action.PUB}),
                            Decision.ALLOW,
                        ),
                    ),
                ),
            ),
        )
    )
    users, acls = dict(store.users), dict(store.acls)
    with monkeypatch.context() as patch:
        SomeWrites(patch, fails_on=(2,))
        with pytest.raises(OSError, match="No space"):
            store.delete_user("alice")
    again = UserStore(tmp_path)
    again.load()
    assert (store.users, store.acls, again.users, again.acls) == (users, acls, users, acls)
    with monkeypatch.context() as patch:
        SomeWrites(patch, fails_on=(2, 3))
        with pytest.raises(
            ValueError,
            match=(
                r"alice could not be deleted \(No space.*\), and its rules, which were, .*: free or"
                r" repair"
            ),
        ):
            store.delete_user("alice")
    assert (store.users, store.acls) == (users, {})
    store.delete_user("alice")
    assert (store.users, store.acls) == ({}, {})
