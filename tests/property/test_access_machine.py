"""Users and their rules against a plain model, with restarts in between; address patterns and
signatures against what they mean.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import ipaddress
import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.access.addresses import network, pattern
from orbitmq.access.credentials import Credentials, RequestSigner
from orbitmq.access.policies import Acl, Decision, Policy, PolicyEntry, PolicyType, ResourcePattern
from orbitmq.access.requests import Action, Resource
from orbitmq.access.signatures import is_signed
from orbitmq.access.user_store import UserStore
from orbitmq.access.users import acl_of, info_of
from orbitmq.common.errors import AlreadyExistsError, NotFoundError
from orbitmq.protocol.bodies.access import AclInfo, UserInfo
from orbitmq.protocol.command import RemotingCommand
from orbitmq.protocol.headers.named_resources import ResourceKind

NAMES = ["a", "ab", "abc", "b"]
USERS = ["alice", "bob"]
KINDS = [ResourceKind.TOPIC, ResourceKind.GROUP]
HOSTS = ["10.0.0.1", "10.1.0.1", "192.168.0.1"]
PATTERNS = [
    "*",
    *(
        f"{kind.value}:{name}{star}"
        for kind in KINDS
        for name in ["", *NAMES]
        for star in ("*", "")
        if name or star
    ),
]
REAL_ACTIONS = [action for action in Action if action not in (Action.ANY, Action.ALL)]

entries = st.builds(
    PolicyEntry,
    st.sampled_from(PATTERNS).map(ResourcePattern.parse),
    st.frozensets(st.sampled_from([*REAL_ACTIONS, Action.ALL]), min_size=1, max_size=3),
    st.sampled_from(Decision),
    st.sampled_from([(), (), ("10.0.0.0/8",), ("10.0.0.1", "192.168.0.0/16")]),
)
policies = st.builds(
    Policy, st.sampled_from(PolicyType), st.lists(entries, min_size=1, max_size=4).map(tuple)
)
resources = st.builds(Resource, st.sampled_from(KINDS), st.sampled_from(NAMES))
actions = st.frozensets(st.sampled_from(REAL_ACTIONS), min_size=1, max_size=2)

Rules = dict[tuple[PolicyType, str], PolicyEntry]


def naive_decision(
    rules: Rules, resource: Resource, wanted: frozenset[Action], host: str
) -> Decision | None:
    """What the page on access control says, word by word."""
    for type_ in (PolicyType.CUSTOM, PolicyType.DEFAULT):
        of_type = {text: entry for (kind, text), entry in rules.items() if kind is type_}
        # From what is most specific to what is least: the name, its beginnings from the longest on,
        # every name, everything.
        beginnings = [
            f"{resource.kind.value}:{resource.name[:length]}*"
            for length in range(len(resource.name), -1, -1)
        ]
        for text in [f"{resource.kind.value}:{resource.name}", *beginnings, "*"]:
            entry = of_type.get(text)
            if entry is None or not (entry.actions & wanted or Action.ALL in entry.actions):
                continue
            networks = [ipaddress.ip_network(source) for source in entry.sources]
            if not networks or any(ipaddress.ip_address(host) in each for each in networks):
                return entry.decision
    return None


class AccessMachine(RuleBasedStateMachine):
    """Users come, change and go; so do their rules."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = UserStore(self.folder)
        self.store.load()
        self.passwords: dict[str, str] = {}
        self.granted: dict[str, Rules] = {}

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(user=st.sampled_from(USERS), password=st.sampled_from(["one", "zwei-é"]))
    def create(self, user: str, password: str) -> None:
        try:
            self.store.create_user(UserInfo(username=user, password=password))
            assert user not in self.passwords
            self.passwords[user] = password
        except AlreadyExistsError:
            assert user in self.passwords

    @rule(user=st.sampled_from(USERS), password=st.sampled_from(["three", None]))
    def change(self, user: str, password: str | None) -> None:
        try:
            self.store.update_user(UserInfo(username=user, password=password))
            self.passwords[user] = password or self.passwords[user]
        except NotFoundError:
            assert user not in self.passwords

    @rule(user=st.sampled_from(USERS))
    def forget(self, user: str) -> None:
        self.store.delete_user(user)
        self.passwords.pop(user, None)
        self.granted.pop(user, None)

    @rule(user=st.sampled_from(USERS), changed=st.lists(policies, min_size=1, max_size=2))
    def put_rules(self, user: str, changed: list[Policy]) -> None:
        acl = acl_of(AclInfo.decode(info_of(Acl(user, tuple(changed))).encode()))  # as they travel
        try:
            self.store.put_acl(acl)
        except NotFoundError:
            assert user not in self.passwords
            return
        for policy in changed:
            for entry in policy.entries:
                self.granted.setdefault(user, {})[policy.type, str(entry.resource)] = entry

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def delete_rule(self, data: st.DataObject) -> None:
        user = data.draw(st.sampled_from(sorted(self.granted)))
        type_, text = data.draw(st.sampled_from(list(self.granted[user])))
        self.store.delete_acl(user, type_, ResourcePattern.parse(text))
        del self.granted[user][type_, text]
        if not self.granted[user]:
            del self.granted[user]

    @rule(user=st.sampled_from(USERS))
    def delete_rules(self, user: str) -> None:
        try:
            self.store.delete_acl(user, PolicyType.CUSTOM, None)
            del self.granted[user]
        except NotFoundError:
            assert user not in self.granted

    @rule()
    def restart(self) -> None:
        self.store = UserStore(self.folder)
        self.store.load()

    @rule(
        user=st.sampled_from(USERS), resource=resources, wanted=actions, host=st.sampled_from(HOSTS)
    )
    def ask(self, user: str, resource: Resource, wanted: frozenset[Action], host: str) -> None:
        acl = self.store.acls.get(user)
        found = None if acl is None else acl.decide(resource, wanted, host)
        assert found is naive_decision(self.granted.get(user, {}), resource, wanted, host)

    @invariant()
    def users_are_those_of_the_model(self) -> None:
        assert {name: user.password for name, user in self.store.users.items()} == self.passwords
        assert self.store.acls.keys() == self.granted.keys()


AccessMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAccess = AccessMachine.TestCase


@given(
    entries_=st.lists(entries, min_size=1, max_size=8),
    resource=resources,
    wanted=actions,
    host=st.sampled_from(HOSTS),
)
def test_a_decision_is_that_of_the_naive_reading(
    entries_: list[PolicyEntry], resource: Resource, wanted: frozenset[Action], host: str
) -> None:
    acl = Acl("u", ()).with_policies([Policy(PolicyType.CUSTOM, tuple(entries_))])
    rules: Rules = {(PolicyType.CUSTOM, str(entry.resource)): entry for entry in entries_}
    assert acl.decide(resource, wanted, host) is naive_decision(rules, resource, wanted, host)


fields = st.dictionaries(
    st.text(st.characters(max_codepoint=0xD7FF), min_size=1, max_size=8),
    st.text(st.characters(max_codepoint=0xD7FF)),
    max_size=6,
)


@given(
    fields=fields,
    body=st.none() | st.binary(),
    secret=st.text(st.characters(max_codepoint=0xD7FF), min_size=1),
    data=st.data(),
)
def test_a_signature_is_right_for_what_was_signed_and_for_nothing_else(
    fields: dict[str, str], body: bytes | None, secret: str, data: st.DataObject
) -> None:
    request = RemotingCommand(10, ext_fields=dict(fields), body=body)
    RequestSigner(Credentials("key", secret)).before("", request)
    signed = request.ext_fields
    assert signed is not None
    content = "".join(signed[name] for name in sorted(signed) if name != "Signature").encode() + (
        body or b""
    )
    assert (
        signed["Signature"]
        == base64.b64encode(hmac.new(secret.encode(), content, hashlib.sha1).digest()).decode()
    )
    assert is_signed(signed, body, secret)
    assert not is_signed(signed, body, secret + "x")
    assert not is_signed(signed, (body or b"") + b"x", secret)
    name = data.draw(st.sampled_from(sorted(signed)))
    assert not is_signed({**signed, name: signed[name] + "x"}, body, secret)


@given(
    parts=st.lists(st.integers(0, 255), min_size=4, max_size=4),
    ranges=st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255)), min_size=3, max_size=3),
)
def test_a_range_matches_the_addresses_within_it(
    parts: list[int], ranges: list[tuple[int, int]]
) -> None:
    bounds = [(min(each), max(each)) for each in ranges]
    text = ".".join([str(parts[0]), *(f"{low}-{high}" for low, high in bounds)])
    inside = all(low <= part <= high for part, (low, high) in zip(parts[1:], bounds, strict=True))
    assert pattern(text)(".".join(map(str, parts))) is inside


@given(address=st.ip_addresses(), length=st.integers(0, 32))
def test_a_network_matches_as_the_standard_library_says(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, length: int
) -> None:
    assert network(f"{address}/{length}")(str(address))
    assert network(str(address))(str(address))


@given(text=st.text(max_size=30))
def test_no_text_makes_a_pattern_fail_otherwise_than_by_a_value_error(text: str) -> None:
    for make in (pattern, network):
        with contextlib.suppress(ValueError):
            make(text)("10.0.0.1")
