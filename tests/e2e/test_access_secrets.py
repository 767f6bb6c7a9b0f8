"""Nothing that people read has a secret in it: not the logs, at any level, not what commands print,
not what consumers explain.

A session of everything in both styles of access control: allowed, denied, mistyped, changed and
failed; then all that was said is searched. Who was denied what is in the audit log.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import (
    ConsumerSettings,
    Credentials,
    Message,
    MessageQueue,
    OrbitError,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from orbitmq.admin import Admin
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers import auth
from orbitmq.testing import LocalCluster
from support.access.people import (
    ALICE,
    BOB,
    OPERATOR,
    PLAIN_ACL,
    USERS,
    add_alice,
    ask,
    run,
    settings,
    signed,
)
from support.cli.commands import Shell
from support.common.waiting import until

GUESSED = Credentials(ALICE.access_key, "guessed-secret")
CHANGED = "changed-secret"
SECRETS = (OPERATOR.secret_key, ALICE.secret_key, BOB.secret_key, GUESSED.secret_key, CHANGED)
STYLES = ("accounts", "users")


class Session:
    """A cluster with access control, and all that anybody said."""

    def __init__(self, mq: LocalCluster, folder: Path, style: str) -> None:
        self.mq = mq
        self.folder = folder
        self.is_of_users = style == "users"
        self.said: list[str] = []

    def say(self, text: object) -> None:
        self.said.append(str(text))
        self.said.append(repr(text))

    def command(
        self, *words: str, who: Credentials | None = OPERATOR, stdin: str | None = None
    ) -> None:
        """Run a command as somebody, and hear all that it prints, also when it fails and is asked
        for its traceback.
        """
        keys = (
            () if who is None else ("--access-key", who.access_key, "--secret-key", who.secret_key)
        )
        for debug in ((), ("--debug",)):
            result = Shell(self.mq.name_server).run(*debug, *words, *keys, stdin=stdin)
            self.said += [result.output, result.stderr, repr(result.exception)]

    async def clients(self, who: Credentials | None) -> None:
        """Use everything once as somebody; whatever fails says why."""
        mine = settings(self.mq.name_server, who)
        self.say(mine)

        async def listen(_message: ReceivedMessage) -> None: ...

        consumer = PushConsumer(mine, "alices", listen, settings=ConsumerSettings())
        consumer.subscribe("Allowed")
        transactions = TransactionProducer(
            mine,
            group="alices",
            execute=lambda *_: TransactionState.COMMIT,
            check=lambda _: TransactionState.COMMIT,
        )
        async with (
            Producer(mine) as producer,
            transactions,
            PullConsumer(mine, "alices") as puller,
            Admin(mine) as admin,
        ):
            self.say(producer.session.settings)
            for work in (
                lambda: producer.send(Message("Allowed", b"x")),
                lambda: producer.send(Message("Denied", b"x")),
                lambda: producer.send_oneway(Message("Denied", b"x")),
                lambda: transactions.send_in_transaction(Message("Allowed", b"x")),
                lambda: puller.pull(MessageQueue("Denied", "broker-a", 0), 0),
                lambda: admin.groups.explain("alices", seconds=0),
                lambda: admin.cluster.config(self.mq.broker_address()),
                lambda: admin.access.users(),
                lambda: admin.access.create_user(BOB.access_key, BOB.secret_key),
                lambda: admin.access.update_user(BOB.access_key, CHANGED),
            ):
                try:
                    self.say(await work())
                except OrbitError as problem:
                    self.say(problem)
            try:
                async with consumer:
                    self.say(await consumer.explain())
            except OrbitError as problem:
                self.say(problem)


@pytest.fixture(params=STYLES)
def session(
    request: pytest.FixtureRequest, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> Iterator[Session]:
    caplog.set_level(1)
    for name in ("orbitmq.audit", "orbitmq"):
        caplog.set_level(1, name)
    (tmp_path / "plain_acl.yml").write_text(PLAIN_ACL)
    accounts = {"aclEnable": "true", "aclFolder": str(tmp_path)}
    with LocalCluster(broker=accounts if request.param == "accounts" else USERS, topics={}) as mq:
        yield Session(mq, tmp_path, request.param)


def forms_of(secret: str) -> tuple[str, ...]:
    """As it is, and as it may be hidden from a reader, but from nobody who looks for it."""
    plain = secret.encode()
    return secret, base64.b64encode(plain).decode().rstrip("="), plain.hex(), secret[::-1]


def test_a_session_of_allowed_and_denied_requests_leaves_no_secret_where_people_read(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    async def prepare() -> None:
        async with (
            Admin(settings(session.mq.name_server, OPERATOR)) as admin,
            Producer(admin.session.settings) as producer,
        ):
            if session.is_of_users:
                await add_alice(admin)
            for topic in ("Allowed", "Denied"):
                await producer.send(Message(topic, b"first"))

    run(prepare)
    for who in (OPERATOR, ALICE, GUESSED, Credentials("nobody-key", GUESSED.secret_key), None):
        run(lambda who=who: session.clients(who))  # type: ignore[misc]
        for words in (
            ("cluster", "list"),
            ("broker", "config"),
            ("broker", "show"),
            ("topic", "list"),
            ("group", "explain", "alices", "--seconds", "0"),
            ("access", "user", "list"),
            ("access", "acl", "list"),
            ("access", "user", "create", BOB.access_key, "--password", BOB.secret_key),
            ("access", "user", "update", BOB.access_key, "--password", CHANGED),
            ("access", "user", "delete", "nobody-at-all"),
        ):
            session.command(*words, who=who)
    session.command(
        "access", "user", "create", "carol-key", stdin=f"{BOB.secret_key}\n{GUESSED.secret_key}\n"
    )  # two that differ
    made = auth.CreateAccessConfigRequestHeader(
        access_key=BOB.access_key, secret_key=BOB.secret_key, topic_perms="B=FLY"
    )
    for who in (OPERATOR, ALICE, None):
        session.say(
            ask(session.mq.broker_address(), signed(RemotingCommand.request(50, made), who))
        )
        session.say(
            ask(
                session.mq.broker_address(),
                signed(RemotingCommand(RequestCode.GET_BROKER_CONFIG), who),
            )
        )
    if not session.is_of_users:
        (session.folder / "plain_acl.yml").write_text(
            f"{PLAIN_ACL}- secretKey: {BOB.secret_key}\n  accessKey: [broken\n"
        )
        run(lambda: until(lambda: "account_file_broken" in caplog.text))
    told = [*session.said, caplog.text, *(str(record.__dict__) for record in caplog.records)]
    leaked = {
        (form, said[max(at - 120, 0) : at + 80])
        for said in told
        for secret in SECRETS
        for form in forms_of(secret)
        if (at := said.find(form)) >= 0
    }
    assert not leaked, leaked
    audited = [record.getMessage() for record in caplog.records if record.name == "orbitmq.audit"]
    for name, resource in ((ALICE.access_key, "Denied"), ("nobody-key", "")):
        denials = [
            line for line in audited if re.search(rf"access_denied who='{name}' .*{resource}", line)
        ]
        assert denials, audited


@pytest.mark.slow
def test_a_broker_that_prints_its_configuration_or_does_not_start_says_no_secret(
    tmp_path: Path,
) -> None:
    pairs = [text for name, value in USERS.items() for text in ("--set", f"{name}={value}")]
    wrong = [*pairs, "--set", f"initAuthenticationUser={{{OPERATOR.secret_key}"]
    shell = Shell("127.0.0.1:1")
    said = ""
    for words in (
        ["-p", *pairs],
        ["-m", *pairs],
        [*wrong, "--set", f"storePathRootDir={tmp_path}"],
        [*wrong, "--set", "listenPort=x"],
    ):
        for kind in ("broker", "nameserver"):
            process = shell.process(
                kind, "run", *words, "--log-level", "debug", "--log-file", str(tmp_path / "log")
            )
            try:
                out, errors = process.communicate(timeout=60)
            finally:
                process.kill()
            said += out + errors
    said += (tmp_path / "log").read_text() if (tmp_path / "log").exists() else ""
    assert "authenticationEnabled" in said
    found = [line for line in said.splitlines() if OPERATOR.secret_key in line]
    assert not found, found
