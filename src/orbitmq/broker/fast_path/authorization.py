# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: a fast path behind guards, which receives only the requests that the guards authorize.

Requests are checked in runs, and a run is passed on at once. Runs begin with one request and double
as long as the whole run is handled: a request that is checked but declined is checked again on the
general path, and such requests must stay a fraction of the total.

The first request of its kind is decoded and checked as on the general path. Its code, access key,
resource names and host are cached together with the secret that signs it. For the next request
that is equal in these, only the signature is checked, over the bytes of the fields in the frame
(`access.guards.Guard.secret_of` says why this suffices). The cache key of an END_TRANSACTION also
contains the topic of its half message; if that is unknown, the request is not cached. The cache is
cleared when a rule changes, and when it grows too large.

Relies on the contract of fast paths: a header that they accept means the same to the decoders, so
what was checked is what is done. Every other frame takes the general path, where the guards refuse
it or its handler serves it. Invariant: when the general path runs, nothing that the fast path
handled is pending.
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
from orbitmq.remoting.endpoint import FastPath

if cython.compiled:
    from cython.cimports.orbitmq.broker.fast_path.properties import unescape
    from cython.cimports.orbitmq.common.mem import address, copy, get32, put32, same, text_bytes
    from cython.cimports.orbitmq.protocol.header_view import HeaderView, read_end, scan
else:
    from orbitmq.broker.fast_path.properties import unescape
    from orbitmq.common.mem import address, copy, get32, put32, same, text_bytes
    from orbitmq.protocol.header_view import HeaderView, read_end, scan

CODES = frozenset(  # the request codes that fast paths handle
    {
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.END_TRANSACTION,
    }
)
END_TRANSACTION = cython.declare(cython.int, RequestCode.END_TRANSACTION)
ALLOWED_MAX = 10_000
NAMES_SIZE_MAX = cython.declare(
    cython.Py_ssize_t, 1000
)  # per cached request: unused names must not fill the memory
NOT_SENT = cython.declare(cython.uint, 0xFFFFFFFF)
PROPERTIES_NAME = cython.declare(
    cython.int, 105
)  # field i, the only one that may be escaped in frames that fast paths handle
ACCESS_KEY_NAME = cython.declare(bytes, ACCESS_KEY.encode())
SIGNATURE_NAME = cython.declare(bytes, SIGNATURE.encode())


class AuthorizingFastPath:
    """Passes authorized requests to a fast path and leaves all others to the general path."""

    def __init__(
        self,
        fast_path: FastPath,
        guards: Sequence[Guard],
        limits: FrameLimits,
        topic_of_half: Callable[[int, int], str | None] | None = None,
    ) -> None:
        """`topic_of_half(root, log_offset)` returns the topic of that half message, or None if it
        is unknown.
        """
        self._fast_path = fast_path
        self._topic_of_half = topic_of_half
        self._guards = guards
        self._frame_max = limits.frame_length_max
        self._header_max = limits.header_length_max
        self._header = HeaderView()
        self._header.notes_fields = True
        self._content = bytearray(1 << 13)
        self._naming = {
            int(code): [
                ACCESS_KEY_NAME,
                *(each.name.encode() for each in NAMING_FIELDS.get(code, ())),
            ]
            for code in CODES
        }
        self._names = bytearray(2 * NAMES_SIZE_MAX)
        self._hosts: dict[str, bytes] = {}  # by peer
        self._allowed: dict[
            bytes, list[SigningKey]
        ] = {}  # by code, names and host: the guards' secrets that must sign the request
        self._rules: list[object] = []
        self._is_fresh = False
        if not cython.compiled:
            self._order = [0] * 40

    def try_handle(
        self, link: Any, buffer: bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t
    ) -> cython.Py_ssize_t:
        """Serve the authorized requests at the start of buffer[start:end]; return the offset after
        them.
        """
        stop: cython.Py_ssize_t
        behind: cython.Py_ssize_t
        taken: cython.Py_ssize_t
        checked: cython.int
        run: cython.int = 1
        channel = link.channel
        if channel.is_tls:  # fast paths do not serve TLS connections
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
                taken = self._fast_path.try_handle(link, buffer, start, stop)
                if taken < stop:
                    start = taken
                    break
                start = stop
            if checked < run:
                if behind == 0:
                    return start
                break
            run *= 2
        self.end_of_iteration()
        return start

    def end_of_iteration(self) -> None:
        self._fast_path.end_of_iteration()
        self._is_fresh = False  # the requests served until the next iteration may change rules

    def before_send(self) -> None:
        self._fast_path.before_send()

    def _look_at_rules(self) -> None:
        """Clear the cache if a rule changed."""
        rules: list[object] = [rule for guard in self._guards for rule in guard.rules]
        if not _are_same(rules, self._rules):
            self._allowed.clear()
            self._rules = rules
        self._is_fresh = True


def _host(path: AuthorizingFastPath, peer: str) -> bytes:
    """Return the host of a peer, and cache it."""
    if len(path._hosts) >= ALLOWED_MAX:
        path._hosts.clear()
    host = path._hosts[peer] = host_of(peer).encode()
    return host


def _are_same(rules: list[object], others: list[object]) -> bool:
    return len(rules) == len(others) and all(map(_is_same, rules, others))


def _is_same(one: object, other: object) -> bool:
    return one is other


@cython.cfunc
@cython.exceptval(check=False)
def _frame_end(
    path: AuthorizingFastPath, buffer: bytearray, start: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.Py_ssize_t:
    """Return the end of the frame that begins at `start`: 0 if it is incomplete, -1 if it is
    invalid, which the general path reports.
    """
    p: cython.p_const_uchar = address(buffer)
    if end - start < 8:
        return 0
    length: cython.longlong = get32(p, start)
    head: cython.longlong = get32(p, start + 4)
    header_length: cython.longlong = head & 0xFFFFFF
    if (
        length + 4 > path._frame_max
        or header_length > length - 4
        or header_length > path._header_max
        or head >> 24 > 1
    ):
        return -1
    return 0 if length + 4 > end - start else start + 4 + length


@cython.cfunc
def _is_allowed(
    path: AuthorizingFastPath,
    peer: str,
    host: bytes,
    buffer: bytearray,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.bint:
    """Return whether the guards authorize the frame."""
    p: cython.p_const_uchar = address(buffer)
    head: cython.longlong = get32(p, start + 4)
    body_at: cython.Py_ssize_t = start + 8 + (head & 0xFFFFFF)
    names: bytes | None = None
    if scan(path._header, p, start + 8, body_at, head >> 24 == 1) and _sort(path, p):
        names = _names(path, p, host)
        if names is not None:
            keys = path._allowed.get(names)
            if keys is not None:
                return _is_signed(path, keys, p, body_at, stop)
    return _is_let_pass(path, peer, names, buffer, start, stop)


def _is_let_pass(
    path: AuthorizingFastPath,
    peer: str,
    names: bytes | None,
    buffer: bytearray,
    start: int,
    stop: int,
) -> bool:
    """Check a request as the general path does, and cache its names if nothing else decides."""
    request = decode(buffer, start, stop)
    if request.code not in CODES or not all(
        guard.lets_pass(peer, request) for guard in path._guards
    ):
        return False
    if names is not None:
        if len(path._allowed) >= ALLOWED_MAX:
            path._allowed.clear()
        secrets = (guard.secret_of(peer, request) for guard in path._guards)
        path._allowed[names] = [signing_key(secret) for secret in secrets if secret is not None]
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _sort(path: AuthorizingFastPath, p: cython.p_const_uchar) -> cython.bint:
    """Sort the fields by name. Returns False if a name occurs twice."""
    header: HeaderView = path._header
    i: cython.int
    at: cython.int
    order: cython.int
    for i in range(header.field_count):
        at = i
        while at > 0:
            order = _compare(header, p, path._order[at - 1], i)
            if order == 0:
                return False
            if order < 0:
                break
            path._order[at] = path._order[at - 1]
            at -= 1
        path._order[at] = i
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _compare(
    header: HeaderView, p: cython.p_const_uchar, one: cython.int, other: cython.int
) -> cython.int:
    """Compare the names of two fields: negative, 0 or positive. The byte order of UTF-8 is the
    order of its text.
    """
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
def _names(path: AuthorizingFastPath, p: cython.p_const_uchar, host: bytes) -> Any:
    """Return everything that decides whether a request is allowed, except its signature; None if
    it must not be cached.
    """
    header: HeaderView = path._header
    naming: list[bytes] | None = path._naming.get(header.code)
    if naming is None:
        return None
    target: cython.p_uchar = address(path._names)
    used: cython.Py_ssize_t = 8 + len(host)
    name: bytes
    at: cython.int
    if used > NAMES_SIZE_MAX:
        return None
    put32(target, 0, header.code)
    put32(target, 4, len(host))
    copy(target, 8, host, 0, len(host))
    if header.code == END_TRANSACTION:
        used = _put_topic_of_half(path, p, target, used)
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
def _put_topic_of_half(
    path: AuthorizingFastPath,
    p: cython.p_const_uchar,
    target: cython.p_uchar,
    used: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Append the topic of the half message to the cache key; return its end, or -1 if the topic is
    unknown.
    """
    header: HeaderView = path._header
    if path._topic_of_half is None or not read_end(header, p):
        return -1
    topic: str | None = path._topic_of_half(header.queue_offset, header.commit_log_offset)
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
def _field(header: HeaderView, p: cython.p_const_uchar, name: bytes) -> cython.int:
    """Return the index of the field with that name, or -1."""
    i: cython.int
    size: cython.Py_ssize_t = len(name)
    for i in range(header.field_count):
        if header.name_size[i] == size and same(p, header.name_at[i], name, size):
            return i
    return -1


@cython.cfunc
def _is_signed(
    path: AuthorizingFastPath,
    keys: list[SigningKey],
    p: cython.p_const_uchar,
    body_at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.bint:
    """Return whether all these secrets sign the request; if not, the general path refuses it."""
    header: HeaderView = path._header
    at: cython.int = _field(header, p, SIGNATURE_NAME)
    used: cython.Py_ssize_t
    if not keys:
        return True
    if at < 0:
        return False
    used = _gather(path, p, at, body_at, stop)
    if used < 0:
        return False
    given: bytes = text_bytes(p, header.value_at[at], header.value_size[at])
    content: bytes = text_bytes(address(path._content), 0, used)
    is_signed: cython.bint = True
    for key in keys:
        if not compare_digest(key.sign(content), given):
            is_signed = False
    return is_signed


@cython.cfunc
def _gather(
    path: AuthorizingFastPath,
    p: cython.p_const_uchar,
    signature_at: cython.int,
    body_at: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Copy the signed content into the buffer: all values except the signature, ordered by name,
    then the body. Return its size, or -1.
    """
    header: HeaderView = path._header
    i: cython.int
    at: cython.int
    used: cython.Py_ssize_t = 0
    target: cython.p_uchar
    needed: cython.Py_ssize_t = stop - body_at
    for i in range(header.field_count):
        needed += header.value_size[i]
    if needed > len(path._content) or len(path._content) > (1 << 20) + needed:
        path._content = bytearray(max(needed, 1 << 13))
    target = address(path._content)
    for i in range(header.field_count):
        at = path._order[i]
        if at == signature_at:
            continue
        if (
            header.is_escaped
            and header.name_size[at] == 1
            and p[header.name_at[at]] == PROPERTIES_NAME
        ):
            used = unescape(
                target, used, p, header.value_at[at], header.value_at[at] + header.value_size[at]
            )
            if used < 0:
                return -1
        else:
            copy(target, used, p, header.value_at[at], header.value_size[at])
            used += header.value_size[at]
    copy(target, used, p, body_at, stop - body_at)
    return used + stop - body_at
