"""Accounts in the style of 4.9: what their files say, what they may do, reading files again and
rewriting them.
"""

from __future__ import annotations

import os
import stat
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from orbitmq.access.account_file import AccountFile, InvalidAccountFileError
from orbitmq.access.account_files import AccountFiles
from orbitmq.access.credentials import Credentials
from orbitmq.access.decisions import AccessDeniedError
from orbitmq.common.errors import ConfigurationError, NotFoundError
from orbitmq.protocol.bodies.nameserver import DataVersion
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from support.access.people import ALICE, OPERATOR, PLAIN_ACL, SECRETS, signed

HOST = "10.0.0.1"


def send(topic: str, code: int = RequestCode.SEND_MESSAGE_V2) -> RemotingCommand:
    return RemotingCommand(
        code, ext_fields={"a": "p", "b": topic, "topic": topic, "group": "p"}, body=b"body"
    )


def pull(topic: str, group: str) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.PULL_MESSAGE, ext_fields={"topic": topic, "consumerGroup": group}
    )


class Files:
    """A folder with account files; each write has a time of its own."""

    def __init__(self, folder: Path, text: str = PLAIN_ACL) -> None:
        self.folder = folder
        self.writes = 0
        self.write(text)
        self.files = AccountFiles(folder, lambda: 1_700_000_000_000)
        self.files.load()

    def write(self, text: str, name: str = "plain_acl.yml") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.writes += 1
        os.utime(path, ns=(self.writes, self.writes))

    def allows(self, request: RemotingCommand, who: Credentials | None, host: str = HOST) -> bool:
        try:
            self.files.accounts.check(host, signed(request, who))
        except AccessDeniedError:
            return False
        return True

    def why_not(self, request: RemotingCommand, who: Credentials | None, host: str = HOST) -> str:
        with pytest.raises(AccessDeniedError) as caught:
            self.files.accounts.check(host, signed(request, who))
        return caught.value.why


@pytest.fixture
def room(tmp_path: Path) -> Files:
    return Files(tmp_path)


def with_alice(*lines: str) -> str:
    account = "\n".join(f"  {line}" for line in lines)
    return (
        f"accounts:\n- accessKey: {ALICE.access_key}\n  secretKey: {ALICE.secret_key}\n{account}\n"
    )


# -- what accounts may do


def test_permissions_of_a_topic_or_group_come_before_the_defaults(room: Files) -> None:
    room.write(
        with_alice(
            "defaultTopicPerm: SUB",
            "defaultGroupPerm: SUB",
            "topicPerms: [A=PUB, B=DENY, C=PUB|SUB]",
            "groupPerms: [bad=DENY]",
        )
    )
    room.files.reload_if_changed()
    assert [topic for topic in "ABCD" if room.allows(send(topic), ALICE)] == ["A", "C"]
    assert [topic for topic in "ABCD" if room.allows(pull(topic, "g"), ALICE)] == ["C", "D"]
    assert not room.allows(pull("D", "bad"), ALICE)
    assert room.why_not(pull("D", "bad"), ALICE) == "No default permission for group:bad"
    assert room.allows(send("%RETRY%g"), ALICE), "consumers of a group send to its retry topic"
    assert not room.allows(send("%RETRY%bad"), ALICE)
    for code in (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
    ):
        assert not room.allows(send("B", code), ALICE)


def test_the_default_for_topics_is_none_for_where_messages_of_all_topics_wait(room: Files) -> None:
    waiting = (
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_wheel_timer",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    )
    assert all(room.allows(pull(topic, "g"), OPERATOR) for topic in waiting)
    room.write(with_alice("defaultTopicPerm: SUB", "defaultGroupPerm: SUB"))
    room.files.reload_if_changed()
    assert room.allows(pull("D", "g"), ALICE)
    assert not any(room.allows(pull(topic, "g"), ALICE) for topic in waiting)
    room.write(with_alice("topicPerms: [SCHEDULE_TOPIC_XXXX=SUB]", "defaultGroupPerm: SUB"))
    room.files.reload_if_changed()
    assert room.allows(pull("SCHEDULE_TOPIC_XXXX", "g"), ALICE), "a rule that names it counts"


def test_an_administrator_may_do_everything_unless_topics_are_named(room: Files) -> None:
    admin_request = RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=b"traceOn=false")
    for request in (send("anything"), pull("anything", "any"), admin_request):
        assert room.allows(request, OPERATOR)
    assert (
        room.why_not(admin_request, ALICE)
        == "Need admin permission for request code=25, but accessKey=alice-key is not"
    )
    assert room.why_not(RemotingCommand(4711), ALICE).startswith(
        "Need admin permission for request code=4711"
    )
    room.write(with_alice("admin: true", "topicPerms: [A=PUB]"))
    room.files.reload_if_changed()
    assert room.allows(send("A"), ALICE)
    assert not room.allows(send("B"), ALICE)
    assert room.allows(RemotingCommand(4711), ALICE)


def test_traces_may_be_sent_by_everybody_who_signs(room: Files) -> None:
    assert room.allows(send("RMQ_SYS_TRACE_TOPIC"), ALICE)
    assert not room.allows(pull("RMQ_SYS_TRACE_TOPIC", "g"), ALICE)


def test_white_addresses_need_no_signature(room: Files) -> None:
    room.write(
        "globalWhiteRemoteAddresses: [10.9.*.*]\n" + with_alice("whiteRemoteAddress: 10.8.0.{1,2}")
    )
    room.files.reload_if_changed()
    assert room.allows(RemotingCommand(4711), None, "10.9.1.1")
    unsigned = send("T")
    assert not room.allows(unsigned, None, "10.8.0.1")
    assert unsigned.ext_fields is not None
    unsigned.ext_fields["AccessKey"] = ALICE.access_key
    assert room.allows(unsigned, None, "10.8.0.1")
    assert not room.allows(unsigned, None, "10.8.0.3")


def test_a_replay_with_another_body_or_topic_is_found_out(room: Files) -> None:
    request = signed(send("Allowed"), ALICE)
    room.files.accounts.check(HOST, request)
    request.body = b"other"
    assert room.why_not(request, None) == "Check signature failed for accessKey=alice-key"
    again = signed(send("Allowed"), ALICE)
    assert again.ext_fields is not None
    again.ext_fields["b"] = "Denied"
    assert not room.allows(again, None)


# -- what files say


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("accounts:\n- accessKey: abcdefg\n  secretKey: [", 3, "it is not YAML from there on"),
        ("accounts:\n\t- accessKey: abcdefg\n", 2, "it is not YAML from there on"),
        (
            (
                "accounts:\n- accessKey: abcdefgh\n  secretKey: abcdefgh\n- accessKey: abc\n "
                " secretKey: sesame-open\n"
            ),
            4,
            "length should longer than 6",
        ),
        ("accounts:\n- accessKey: abcdefgh\n", 2, "length should longer than 6"),
        ("accounts:\n- plain\n", 2, "an account is not a mapping"),
        ("accounts:\n  accessKey: abcdefgh\n", 2, "accounts is not a list"),
        ("- accessKey: abcdefgh\n", 1, "it is not a mapping"),
        (
            "globalWhiteRemoteAddresses:\n- 10.0.0.1\n- 10.0.0\n",
            2,
            "globalWhiteRemoteAddresses has an invalid address pattern",
        ),
        (
            with_alice("whiteRemoteAddress: host"),
            2,
            "whiteRemoteAddress has an invalid address pattern",
        ),
        (
            with_alice("topicPerms: [A]"),
            2,
            "Parse resource permission failed for topicPerms; write name=PUB",
        ),
        ("\ufffe", 1, ""),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line_and_without_secrets(
    text: str, line: int, reason: str
) -> None:
    with pytest.raises(InvalidAccountFileError) as caught:
        AccountFile.decode(text.encode())
    assert caught.value.line == line
    assert reason in caught.value.reason
    assert not any(secret in str(caught.value) for secret in (*SECRETS, "sesame-open"))


@pytest.mark.parametrize(
    "text",
    [
        *(
            f"accounts:\n- accessKey: operator\n  secretKey: {sign}sesame-open\n"
            for sign in ("*", "!", "!a!", "%", "'a' ", "@", "[", '"\\x')
        ),
        "accounts:\n- accessKey: operator\n  secretKey: &sesame-open x\n  other: &sesame-open y\n",
        "%sesame-open\n%TAG ! sesame-open\n%TAG ! sesame-open\n---\naccounts:\n",
        "globalWhiteRemoteAddresses: [sesame-open]\n",
        "globalWhiteRemoteAddresses: sesame-open\n",
        "accounts:\n- sesame-open\n",
        "accounts:\n- accessKey: sesame-open\n  secretKey: short\n",
        "sesame-open\n",
        with_alice("topicPerms: [sesame-open]"),
        with_alice("groupPerms: [a=b=sesame-open]"),
        with_alice("whiteRemoteAddress: sesame-open"),
        with_alice("whiteRemoteAddress: 1.2.3.{sesame-open}"),
    ],
)
def test_nothing_that_stands_in_a_broken_file_reaches_a_log(
    text: str, room: Files, caplog: pytest.LogCaptureFixture
) -> None:
    room.write(text)
    room.files.reload_if_changed()
    assert "account_file_broken" in caplog.text
    assert "sesame" not in caplog.text
    with pytest.raises(ConfigurationError) as caught:
        AccountFiles(room.folder, lambda: 0).load()
    assert "sesame" not in "".join(traceback.format_exception(caught.value))


def test_keys_are_the_texts_that_stand_there() -> None:
    (account,) = AccountFile.decode(
        b"accounts:\n- accessKey: 0123456\n  secretKey: 1e10000\n  admin: 'TRUE'\n"
    ).accounts
    assert (account.access_key, account.secret_key, account.is_admin) == (
        "0123456",
        "1e10000",
        True,
    )
    assert "1e10000" not in repr(account)


def test_permissions_that_are_not_known_deny_as_in_the_original() -> None:
    (account,) = AccountFile.decode(
        with_alice("defaultTopicPerm: PUBLISH", "topicPerms: [A=EVERYTHING]").encode()
    ).accounts
    assert not account.topic_permission
    assert list(account.permissions.values()) == [frozenset()]


@pytest.mark.parametrize("text", ["", "# nothing\n", "accounts:\n", "{}"])
def test_a_file_may_say_nothing(text: str) -> None:
    assert AccountFile.decode(text.encode()).accounts == ()


# -- several files, and changes


def test_all_files_count_and_the_first_has_a_key_that_stands_in_several(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    room = Files(
        tmp_path, "globalWhiteRemoteAddresses: [10.1.0.1]\n" + with_alice("defaultTopicPerm: DENY")
    )
    room.write(
        "globalWhiteRemoteAddresses: [10.1.0.2]\n" + with_alice("defaultTopicPerm: PUB"),
        "acl/team/a.yaml",
    )
    room.write("accounts: not used", "acl/readme.txt")
    room.files.reload_if_changed()
    assert room.allows(send("T"), ALICE)
    assert room.allows(send("T"), None, "10.1.0.1")
    assert room.allows(send("T"), None, "10.1.0.2")
    assert "account_repeated access_key=alice-key" in caplog.text


def test_a_changed_file_counts_and_a_broken_one_keeps_what_it_said(
    room: Files, caplog: pytest.LogCaptureFixture
) -> None:
    assert not room.allows(send("Other"), ALICE)
    room.write(PLAIN_ACL.replace("Allowed=", "Other="))
    room.files.reload_if_changed()
    assert room.allows(send("Other"), ALICE)
    room.write(f"accounts:\n- accessKey: {ALICE.access_key}\n  secretKey: short\n")
    room.files.reload_if_changed()
    assert room.allows(send("Other"), ALICE)
    assert f"account_file_broken file={room.files.default_path} line=2" in caplog.text
    assert "length should longer than 6" in caplog.text
    caplog.clear()
    room.files.reload_if_changed()
    assert caplog.text == "", "it is said once"
    room.files.default_path.unlink()
    room.files.reload_if_changed()
    assert room.why_not(send("Other"), ALICE) == "No acl config for alice-key"


def test_a_file_that_cannot_be_used_keeps_a_server_from_starting(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"plain_acl.yml cannot be used: line 1: .*; fix it, or set aclEnable=false",
    ):
        Files(tmp_path, "- nothing")


def test_nobody_may_do_anything_without_accounts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    room = Files(tmp_path, "")
    assert room.why_not(send("T"), OPERATOR) == "No acl config for operator"
    assert room.why_not(send("T"), None) == "No accessKey is configured"
    assert "no_accounts" in caplog.text


# -- writing


def test_an_account_is_made_changed_and_forgotten_in_its_file(room: Files) -> None:
    carol = Credentials("carol-key", "0123456789")
    room.files.put(
        {
            "accessKey": carol.access_key,
            "secretKey": carol.secret_key,
            "defaultTopicPerm": "PUB",
            "admin": "false",
        }
    )
    assert room.allows(send("T"), carol)
    assert room.files.version == DataVersion(counter=1, timestamp=1_700_000_000_000)
    room.files.put({"accessKey": carol.access_key, "topicPerms": ["T=DENY"], "admin": "false"})
    assert not room.allows(send("T"), carol)
    assert room.allows(send("U"), carol), "what was not said stays"
    again = AccountFiles(room.folder, lambda: 0)
    again.load()
    assert again.account_members() == room.files.account_members()
    assert again.version.counter == 2
    parsed = yaml.safe_load(room.files.default_path.read_text())
    assert parsed["dataVersion"] == [{"counter": 2, "timestamp": 1_700_000_000_000}]
    assert [(each["accessKey"], each["secretKey"], each["admin"]) for each in parsed["accounts"]][
        -1
    ] == ("carol-key", "0123456789", False)
    room.files.delete(carol.access_key)
    assert room.why_not(send("U"), carol) == "No acl config for carol-key"
    assert room.allows(send("Allowed"), ALICE)
    with pytest.raises(NotFoundError, match="no account has the accessKey carol-key"):
        room.files.delete(carol.access_key)


def test_what_could_not_be_used_changes_nothing(room: Files) -> None:
    before = room.files.default_path.read_bytes()
    with pytest.raises(ValueError, match="length should longer than 6"):
        room.files.put({"accessKey": "carol-key", "secretKey": "short"})
    with pytest.raises(ValueError, match="'nowhere' is not an address"):
        room.files.set_white(["nowhere"])
    with pytest.raises(NotFoundError, match="not one of the account files"):
        room.files.set_white(["10.0.0.1"], room.folder / "other.yml")
    assert room.files.default_path.read_bytes() == before
    assert room.allows(send("Allowed"), ALICE)


WRITES: list[Callable[[AccountFiles], None]] = [
    lambda files: files.put(
        {"accessKey": ALICE.access_key, "defaultTopicPerm": "PUB", "admin": "false"}
    ),
    lambda files: files.put(
        {"accessKey": "carol-key", "secretKey": "carol-secret", "admin": "false"}
    ),
    lambda files: files.delete(ALICE.access_key),
    lambda files: files.set_white(["10.0.0.1"]),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_change_by_an_editor_survives_a_request_that_comes_before_it_was_read(
    room: Files, write: Callable[[AccountFiles], None]
) -> None:
    room.write(
        PLAIN_ACL + "- {accessKey: newcomer, secretKey: newcomer-secret, defaultTopicPerm: PUB}\n"
    )
    write(room.files)
    assert "newcomer-secret" in room.files.default_path.read_text()
    assert room.allows(send("T"), Credentials("newcomer", "newcomer-secret"))


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_broken_file_is_not_overwritten(
    room: Files, write: Callable[[AccountFiles], None], is_noticed: bool
) -> None:
    broken = "accounts:\n- {accessKey: handmade, secretKey: handmade-secret\n"
    room.write(broken)
    if is_noticed:
        room.files.reload_if_changed()
    with pytest.raises(
        ValueError,
        match=(
            r"plain_acl.yml cannot be used as it is now, .*: line \d: it is not YAML .*; fix it"
            r" first"
        ),
    ) as caught:
        write(room.files)
    assert "handmade" not in str(caught.value)
    assert room.files.default_path.read_text() == broken
    assert room.allows(send("Allowed"), ALICE), "the rules are those that it had"
    room.write(PLAIN_ACL)
    write(room.files)


def test_a_file_that_could_not_be_read_is_read_as_soon_as_it_can(
    room: Files, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    room.write(PLAIN_ACL.replace("Allowed=", "Other="))
    accounts = room.files.accounts
    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refuse)
        for _ in range(3):
            room.files.reload_if_changed()
        with pytest.raises(
            ValueError,
            match=(
                "cannot be used as it is now, and would be overwritten: Permission denied; fix it"
                " first"
            ),
        ):
            room.files.set_white([])
    assert caplog.text.count("account_file_unreadable") == 1, "it is said once"
    assert room.files.accounts is accounts, "what was decided by the rules still holds"
    room.files.reload_if_changed()
    assert room.allows(send("Other"), ALICE)
    caplog.clear()
    room.files.reload_if_changed()
    assert caplog.text == ""


def test_a_file_that_is_made_is_for_its_owner_only(tmp_path: Path) -> None:
    files = AccountFiles(tmp_path / "new", lambda: 0)
    files.load()
    files.put({"accessKey": "carol-key", "secretKey": "carol-secret"})
    assert stat.S_IMODE(files.default_path.stat().st_mode) == 0o600
    files.set_white(["10.0.0.1"])
    assert stat.S_IMODE(files.default_path.stat().st_mode) == 0o600
    assert files.white_addresses == ["10.0.0.1"]
