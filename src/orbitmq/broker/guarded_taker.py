# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Kernel: a taker behind guards, which gets those requests that the guards let pass.

They are checked in runs, and a run is taken at once. Runs begin with one request and double as long as all of a run is taken: what is
checked and not taken is checked again on the general way, and that must stay a part of the whole.

A request is decoded and checked as on the general way. Then it is remembered which code, access key and names that was, from which host,
and by whose secret it is signed: of the next one that is the same in these the signature alone is checked, over the bytes that the fields
have in the frame (`access.guards.Guard.secret_of` says why that will do). The end of a transaction is also remembered by the topic of its
half message, and not at all when that is not known. What is remembered is forgotten when a rule changes, and as a whole when it is too
much.

Relies on what takers promise, that a header which they take says the same to the decoders: what was checked is what is done. Every other
frame goes the general way, where the guards refuse it or its handler serves it. Invariant: when that way is taken, nothing that the taker
took is pending.
"""

from collections.abc import Callable, Sequence
from hmac import compare_digest
from typing import Any

import cython

from orbitmq.access.addresses import host_of
from orbitmq.access.guards import Guard
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.frame import FrameLimits, decode
from orbitmq.protocol.headers.named_resources import NAMING_FIELDS
from orbitmq.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKey, signing_key
from orbitmq.remoting.endpoint import Taker

if cython.compiled:
    from cython.cimports.orbitmq.broker.hot_header import HotHeader, read_end, scan
    from cython.cimports.orbitmq.broker.hot_properties import unescape
    from cython.cimports.orbitmq.common.mem import address, copy, get32, put32, same, text_bytes
else:
    from orbitmq.broker.hot_header import HotHeader, read_end, scan
    from orbitmq.broker.hot_properties import unescape
    from orbitmq.common.mem import address, copy, get32, put32, same, text_bytes

CODES = frozenset(  # what takers know
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.END_TRANSACTION}
)
END_TRANSACTION = cython.declare(cython.int, RequestCode.END_TRANSACTION)
ALLOWED_MAX = 10_000
NAMES_SIZE_MAX = cython.declare(cython.Py_ssize_t, 1000)  # of a request that is remembered: names that nobody uses could fill the memory
NOT_SENT = cython.declare(cython.uint, 0xFFFFFFFF)
PROPERTIES_NAME = cython.declare(cython.int, 105)  # i, the only field that may be escaped in what takers take
ACCESS_KEY_NAME = cython.declare(bytes, ACCESS_KEY.encode())
SIGNATURE_NAME = cython.declare(bytes, SIGNATURE.encode())


class GuardedTaker:
    """See above."""

    __slots__ = (
        "_allowed",
        "_content",
        "_frame_max",
        "_guards",
        "_header",
        "_header_max",
        "_hosts",
        "_is_fresh",
        "_names",
        "_naming",
        "_order",
        "_rules",
        "_taker",
        "_topic_of_half",
    )

    def __init__(
        self, taker: Taker, guards: Sequence[Guard], limits: FrameLimits, topic_of_half: Callable[[int, int], str | None] | None = None
    ) -> None:
        """`topic_of_half(root, log_offset)` is the topic of the half message there, None when it is not known."""
        self._taker = taker
        self._topic_of_half = topic_of_half
        self._guards = guards
        self._frame_max = limits.frame_length_max
        self._header_max = limits.header_length_max
        self._header = HotHeader()
        self._header.notes_fields = True
        self._content = bytearray(1 << 13)
        self._naming = {int(code): [ACCESS_KEY_NAME, *(each.name.encode() for each in NAMING_FIELDS.get(code, ()))] for code in CODES}
        self._names = bytearray(2 * NAMES_SIZE_MAX)
        self._hosts: dict[str, bytes] = {}  # of peers
        self._allowed: dict[bytes, list[SigningKey]] = {}  # by code, names and host, what has to have signed
        self._rules: list[object] = []
        self._is_fresh = False
        if not cython.compiled:
            self._order = [0] * 40

    def take(self, link: Any, buffer: bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Serve those requests that buffer[start:end] begins with and that are allowed; the offset behind them."""
        stop: cython.Py_ssize_t
        behind: cython.Py_ssize_t
        taken: cython.Py_ssize_t
        checked: cython.int
        run: cython.int = 1
        channel = link.channel
        if channel.is_tls:  # whose requests takers leave alone
            self._is_fresh = False
            return start
        peer: str = channel.remote_address
        host: bytes | None = self._hosts.get(peer)
        if host is None:
            host = _host(self, peer)
        if not self._is_fresh:
            self._look_at_rules()
        while link.may_receive:
            stop = start
            checked = 0
            while checked < run:
                behind = _frame_end(self, buffer, stop, end)
                if behind <= 0 or not _is_allowed(self, peer, host, buffer, stop, behind):
                    break
                stop = behind
                checked += 1
            if stop > start:
                taken = self._taker.take(link, buffer, start, stop)
                if taken < stop:
                    start = taken
                    break
                start = stop
            if checked < run:
                if behind == 0:
                    return start
                break
            run *= 2
        self.end_turn()
        return start

    def end_turn(self) -> None:
        self._taker.end_turn()
        self._is_fresh = False  # whoever is served now may change rules

    def before_send(self) -> None:
        self._taker.before_send()

    def _look_at_rules(self) -> None:
        """Forget what was allowed by rules that are no more."""
        rules: list[object] = [rule for guard in self._guards for rule in guard.rules]
        if not _are_same(rules, self._rules):
            self._allowed.clear()
            self._rules = rules
        self._is_fresh = True


def _host(taker: GuardedTaker, peer: str) -> bytes:
    """The host of a peer, and keep it."""
    if len(taker._hosts) >= ALLOWED_MAX:
        taker._hosts.clear()
    host = taker._hosts[peer] = host_of(peer).encode()
    return host


def _are_same(rules: list[object], others: list[object]) -> bool:
    return len(rules) == len(others) and all(map(_is_same, rules, others))


def _is_same(one: object, other: object) -> bool:
    return one is other


@cython.cfunc
@cython.exceptval(check=False)
def _frame_end(taker: GuardedTaker, buffer: bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Where the frame that begins at `start` ends; 0 while it is not whole, -1 when it is none, which the general way says."""
    p: cython.p_const_uchar = address(buffer)
    if end - start < 8:
        return 0
    length: cython.longlong = get32(p, start)
    head: cython.longlong = get32(p, start + 4)
    header_length: cython.longlong = head & 0xFFFFFF
    if length + 4 > taker._frame_max or header_length > length - 4 or header_length > taker._header_max or head >> 24 > 1:
        return -1
    return 0 if length + 4 > end - start else start + 4 + length


@cython.cfunc
def _is_allowed(
    taker: GuardedTaker, peer: str, host: bytes, buffer: bytearray, start: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.bint:
    """Whether the guards let the frame pass."""
    p: cython.p_const_uchar = address(buffer)
    head: cython.longlong = get32(p, start + 4)
    body_at: cython.Py_ssize_t = start + 8 + (head & 0xFFFFFF)
    names: bytes | None = None
    if scan(taker._header, p, start + 8, body_at, head >> 24 == 1) and _sort(taker, p):
        names = _names(taker, p, host)
        if names is not None:
            keys = taker._allowed.get(names)
            if keys is not None:
                return _is_signed(taker, keys, p, body_at, stop)
    return _is_let_pass(taker, peer, names, buffer, start, stop)


def _is_let_pass(taker: GuardedTaker, peer: str, names: bytes | None, buffer: bytearray, start: int, stop: int) -> bool:
    """Check a request as the general way does, and remember what it names if that is all that counts."""
    request = decode(buffer, start, stop)
    if request.code not in CODES or not all(guard.lets_pass(peer, request) for guard in taker._guards):
        return False
    if names is not None:
        if len(taker._allowed) >= ALLOWED_MAX:
            taker._allowed.clear()
        secrets = (guard.secret_of(peer, request) for guard in taker._guards)
        taker._allowed[names] = [signing_key(secret) for secret in secrets if secret is not None]
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _sort(taker: GuardedTaker, p: cython.p_const_uchar) -> cython.bint:
    """Put the fields into the order of their names; no: there is one twice."""
    header: HotHeader = taker._header
    i: cython.int
    at: cython.int
    order: cython.int
    for i in range(header.field_count):
        at = i
        while at > 0:
            order = _compare(header, p, taker._order[at - 1], i)
            if order == 0:
                return False
            if order < 0:
                break
            taker._order[at] = taker._order[at - 1]
            at -= 1
        taker._order[at] = i
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _compare(header: HotHeader, p: cython.p_const_uchar, one: cython.int, other: cython.int) -> cython.int:
    """Below, at or above 0 as the name of one field is before, the same as or behind that of the other: UTF-8 has the order of its text."""
    a: cython.Py_ssize_t = header.name_at[one]
    b: cython.Py_ssize_t = header.name_at[other]
    a_end: cython.Py_ssize_t = a + header.name_size[one]
    b_end: cython.Py_ssize_t = b + header.name_size[other]
    while a < a_end and b < b_end:
        if p[a] != p[b]:
            return 1 if p[a] > p[b] else -1
        a += 1
        b += 1
    return 1 if a < a_end else -1 if b < b_end else 0


@cython.cfunc
def _names(taker: GuardedTaker, p: cython.p_const_uchar, host: bytes) -> Any:
    """What of a request decides whether it is allowed, but for its signature; None when it is not to be remembered."""
    header: HotHeader = taker._header
    naming: list[bytes] | None = taker._naming.get(header.code)
    if naming is None:
        return None
    target: cython.p_uchar = address(taker._names)
    used: cython.Py_ssize_t = 8 + len(host)
    name: bytes
    at: cython.int
    if used > NAMES_SIZE_MAX:
        return None
    put32(target, 0, header.code)
    put32(target, 4, len(host))
    copy(target, 8, host, 0, len(host))
    if header.code == END_TRANSACTION:
        used = _put_topic_of_half(taker, p, target, used)
        if used < 0:
            return None
    for name in naming:
        at = _field(header, p, name)
        if at < 0:
            put32(target, used, NOT_SENT)
            used += 4
            continue
        if used + header.value_size[at] > NAMES_SIZE_MAX:
            return None
        put32(target, used, header.value_size[at])
        copy(target, used + 4, p, header.value_at[at], header.value_size[at])
        used += 4 + header.value_size[at]
    return text_bytes(target, 0, used)


@cython.cfunc
def _put_topic_of_half(taker: GuardedTaker, p: cython.p_const_uchar, target: cython.p_uchar, used: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Add the topic of the half message whose transaction ends to what is remembered; its end, or -1 when it is not known."""
    header: HotHeader = taker._header
    if taker._topic_of_half is None or not read_end(header, p):
        return -1
    topic: str | None = taker._topic_of_half(header.queue_offset, header.commit_log_offset)
    if topic is None:
        return -1
    raw: bytes = topic.encode()
    if used + len(raw) > NAMES_SIZE_MAX:
        return -1
    put32(target, used, len(raw))
    copy(target, used + 4, raw, 0, len(raw))
    return used + 4 + len(raw)


@cython.cfunc
@cython.exceptval(check=False)
def _field(header: HotHeader, p: cython.p_const_uchar, name: bytes) -> cython.int:
    """Which field has that name, -1 when none has."""
    i: cython.int
    size: cython.Py_ssize_t = len(name)
    for i in range(header.field_count):
        if header.name_size[i] == size and same(p, header.name_at[i], name, size):
            return i
    return -1


@cython.cfunc
def _is_signed(
    taker: GuardedTaker, keys: list[SigningKey], p: cython.p_const_uchar, body_at: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.bint:
    """Whether the request is signed by all of these; one that is not will be told so on the general way."""
    header: HotHeader = taker._header
    at: cython.int = _field(header, p, SIGNATURE_NAME)
    used: cython.Py_ssize_t
    if not keys:
        return True
    if at < 0:
        return False
    used = _gather(taker, p, at, body_at, stop)
    if used < 0:
        return False
    given: bytes = text_bytes(p, header.value_at[at], header.value_size[at])
    content: bytes = text_bytes(address(taker._content), 0, used)
    is_signed: cython.bint = True
    for key in keys:
        if not compare_digest(key.sign(content), given):
            is_signed = False
    return is_signed


@cython.cfunc
def _gather(
    taker: GuardedTaker, p: cython.p_const_uchar, signature_at: cython.int, body_at: cython.Py_ssize_t, stop: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Put what is signed into the buffer: all values but the signature, in the order of their names, then the body; its size, or -1."""
    header: HotHeader = taker._header
    i: cython.int
    at: cython.int
    used: cython.Py_ssize_t = 0
    target: cython.p_uchar
    needed: cython.Py_ssize_t = stop - body_at
    for i in range(header.field_count):
        needed += header.value_size[i]
    if needed > len(taker._content) or len(taker._content) > (1 << 20) + needed:
        taker._content = bytearray(max(needed, 1 << 13))
    target = address(taker._content)
    for i in range(header.field_count):
        at = taker._order[i]
        if at == signature_at:
            continue
        if header.is_escaped and header.name_size[at] == 1 and p[header.name_at[at]] == PROPERTIES_NAME:
            used = unescape(target, used, p, header.value_at[at], header.value_at[at] + header.value_size[at])
            if used < 0:
                return -1
        else:
            copy(target, used, p, header.value_at[at], header.value_size[at])
            used += header.value_size[at]
    copy(target, used, p, body_at, stop - body_at)
    return used + stop - body_at
