"""Access control: the cost of signed sends and transactions, on versus off. Users as in 5.x;
accounts, as in 4.9, for our broker only.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

from _broker_room import QUEUES, broker
from _harness import (
    LOAD_KEYS,
    Pace,
    Result,
    Workload,
    ask_at,
    compare,
    load,
    medians,
    running,
    take_turns,
)
from interop import apache
from orbitmq.access.credentials import Credentials, RequestSigner
from orbitmq.protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import RemotingCommand

STYLES = ("off", "users", "accounts")
TOPIC = "BenchmarkTest"
WORKLOADS = tuple(
    Workload(
        name=f"{name} {connections}x{window}",
        arguments=("-m", mode, "-T", TOPIC, "-q", str(QUEUES)),
        connections=connections,
        window=window,
        answer_code=0,
    )
    for name, mode, connections, window in (
        ("send", "send", 64, 1),
        ("send", "send", 1, 64),
        ("transactions", "transaction", 1, 64),
    )
)
OTHER_TOPICS = tuple(f"T{number}" for number in range(8))  # rules for topics that are not used
ALICE, OPERATOR = (
    Credentials("alice-key", "alice-secret"),
    Credentials("operator", "operator-secret"),
)
_PROVIDERS = "org.apache.rocketmq.auth"
_USERS = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_PROVIDERS}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        f"{_PROVIDERS}.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": (
        f'{{"username":"{OPERATOR.access_key}","password":"{OPERATOR.secret_key}"}}'
    ),
    "innerClientAuthenticationCredentials": (
        f'{{"accessKey":"{OPERATOR.access_key}","secretKey":"{OPERATOR.secret_key}"}}'
    ),
    "authorizationEnabled": "true",
    "authorizationProvider": f"{_PROVIDERS}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": (
        f"{_PROVIDERS}.authorization.provider.LocalAuthorizationMetadataProvider"
    ),
}


def measure(options: argparse.Namespace, pace: Pace) -> Result:
    """Measure on and off in turns, like contenders; `kept` is the ratio of the rates, on to off."""
    names = [
        f"{contender}-{style}"
        for contender in options.server
        for style in STYLES
        if (contender, style) != ("apache", "accounts")
    ]
    measured: Result = {}
    with running(partial(_guarded, options.apache), names) as servers:
        for name, server in servers.items():
            if name.endswith("users"):
                _let_alice(server)
        for asked in WORKLOADS:
            measured |= _contest(servers, asked, pace)
    return measured


def _contest(servers: dict[str, apache.Server], asked: Workload, pace: Pace) -> Result:
    def turn(name: str, seconds: float = pace.seconds, settle_s: float = pace.settle_s) -> Result:
        signed = () if name.endswith("off") else ("-A", f"{ALICE.access_key}:{ALICE.secret_key}")
        return load(
            servers[name], replace(asked, arguments=(*asked.arguments, *signed)), seconds, settle_s
        )

    for name in servers:
        turn(name, pace.warm_up_s, 0.0)
    reports = take_turns(f"access: {asked.name}", servers, pace.rounds, turn, quiet_within_s=3.0)
    measured: Result = {}
    found = {name: medians(of, pace.rounds, LOAD_KEYS) for name, of in reports.items()}
    for style in STYLES:
        of_style = {
            name.rpartition("-")[0]: each for name, each in found.items() if name.endswith(style)
        }
        for contender, each in of_style.items():
            unguarded = found[f"{contender}-off"].get("messages_per_s")
            if style != "off" and unguarded and "messages_per_s" in each:
                each["kept"] = round(each["messages_per_s"] / unguarded, 3)
        takes_no_part: Result = {} if style != "accounts" else {"apache": {}}
        measured[f"access {style if style == 'off' else f'by {style}'}: {asked.name}"] = (
            takes_no_part | compare(of_style)
        )
    return measured


def _guarded(apache_version: str, name: str, home: Path) -> apache.Server:
    """Return the broker of this contender with this style of access control."""
    contender, _, style = name.rpartition("-")
    settings: dict[str, object] = {}
    if style == "users":
        settings = {**_USERS, "authConfigPath": home / "auth"}
    elif style == "accounts":
        folder = home.with_name(home.name + "-rules")
        folder.mkdir(parents=True)
        perms = ", ".join(f"{topic}=PUB|SUB" for topic in (TOPIC, *OTHER_TOPICS))
        account = (
            f"{{accessKey: {ALICE.access_key}, secretKey: {ALICE.secret_key}, defaultGroupPerm:"
            f" SUB, topicPerms: [{perms}]}}"
        )
        (folder / "plain_acl.yml").write_text(f"accounts: [{account}]\n")
        settings = {"aclEnable": "true", "aclFolder": folder}
    return broker(contender, home, apache_version=apache_version, settings=settings)


def _let_alice(server: apache.Server) -> None:
    """Create the user alice and her permissions, as the operator."""
    user = UserInfo(username=ALICE.access_key, password=ALICE.secret_key, user_type="Normal")
    resources = ["Group:*", *(f"Topic:{topic}" for topic in (*OTHER_TOPICS, TOPIC))]
    entries = [
        PolicyEntryInfo(resource=each, actions=["Pub", "Sub"], decision="Allow")
        for each in resources
    ]
    subject = f"User:{ALICE.access_key}"
    rules = AclInfo(subject=subject, policies=[PolicyInfo(policy_type="Custom", entries=entries)])
    for code, fields, body in (
        (RequestCode.AUTH_CREATE_USER, {"username": ALICE.access_key}, user.encode()),
        (RequestCode.AUTH_CREATE_ACL, {"subject": subject}, rules.encode()),
    ):
        request = RemotingCommand(code, ext_fields=dict(fields), body=body)
        RequestSigner(OPERATOR).before("", request)
        answer = ask_at(server.address, request)
        if answer.code != 0:
            raise RuntimeError(f"{code.name}: {server.address} answered {answer!r}")
