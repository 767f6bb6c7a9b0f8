# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: parses the headers of sends, pulls and ends of transactions, JSON and binary, into
offsets and numbers, without an object per field.

Its executable specifications are `header_json.decode`, `header_binary.decode` and the typed headers
of `protocol.headers`: a header that is accepted here means the same to them. Every unusual header
(escapes outside of properties, a repeated field, numbers that may overflow, bytes that are not
UTF-8) is left to them. Knows nothing of what a request means.
"""

import cython

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import find, get32, is_ascii, same, signed32, text
else:
    from orbitmq.common.mem import find, get32, is_ascii, same, signed32, text

QUOTE = cython.declare(cython.int, 34)
COMMA = cython.declare(cython.int, 44)
COLON = cython.declare(cython.int, 58)
BACKSLASH = cython.declare(cython.int, 92)
OPEN = cython.declare(cython.int, 123)
CLOSE = cython.declare(cython.int, 125)
BINARY_SIZE_MIN = cython.declare(cython.Py_ssize_t, 21)
DIGITS_32 = cython.declare(cython.Py_ssize_t, 9)  # any number of this many digits fits
DIGITS_64 = cython.declare(cython.Py_ssize_t, 18)
STOPS = cython.declare(
    bytes, bytes(byte < 32 or byte in b'"\\' for byte in range(256))
)  # bytes that end a text or are not plain

FIELDS_MAX = cython.declare(cython.int, 40)  # fields noted per header

# Slots of fields: the letters a to n of a send, then the names of a pull, then those of
# END_TRANSACTION.
SLOTS = cython.declare(cython.int, 31)
LETTERS = cython.declare(cython.int, 14)
PROPERTIES = cython.declare(cython.int, 8)
CONSUMER_GROUP = cython.declare(cython.int, 14)
TOPIC = cython.declare(cython.int, 15)
QUEUE_ID = cython.declare(cython.int, 16)
QUEUE_OFFSET = cython.declare(cython.int, 17)
MAX_MSG_NUMS = cython.declare(cython.int, 18)
SYS_FLAG = cython.declare(cython.int, 19)
COMMIT_OFFSET = cython.declare(cython.int, 20)
SUSPEND_TIMEOUT = cython.declare(cython.int, 21)
SUB_VERSION = cython.declare(cython.int, 22)
SUBSCRIPTION = cython.declare(cython.int, 23)
EXPRESSION_TYPE = cython.declare(cython.int, 24)
PRODUCER_GROUP = cython.declare(cython.int, 25)
TABLE_OFFSET = cython.declare(cython.int, 26)
LOG_OFFSET = cython.declare(cython.int, 27)
OUTCOME = cython.declare(cython.int, 28)
MSG_ID = cython.declare(cython.int, 29)
TRANSACTION_ID = cython.declare(cython.int, 30)


class HeaderView:
    """A view of one header at a time. `…_at` and `…_size` locate a text; a size of -1 means that
    the field is absent.

    With `notes_fields`, the names and values of all fields are noted too, in wire order.
    """

    def __init__(self) -> None:
        self.code = self.flag = self.opaque = self.queue_id = self.sys_flag = self.message_flag = (
            self.reconsume_times
        ) = self.count_max = 0
        self.topic_at = self.topic_size = self.properties_at = self.properties_size = (
            self.group_at
        ) = self.group_size = 0
        self.subscription_at = self.subscription_size = self.type_at = self.type_size = 0
        self.born_time_ms = self.queue_offset = self.commit_offset = self.sub_version = (
            self.suspend_ms
        ) = self.commit_log_offset = 0
        self.outcome = self.transaction_id_at = self.transaction_id_size = 0
        self.is_escaped = self.is_batch = self._is_bad = self.notes_fields = False
        self.field_count = 0
        if not cython.compiled:
            self._at = [0] * 31
            self._size = [0] * 31
            self.name_at, self.name_size, self.value_at, self.value_size = (
                [0] * 40,
                [0] * 40,
                [0] * 40,
                [0] * 40,
            )


@cython.cfunc
def scan(
    header: HeaderView,
    p: cython.p_const_uchar,
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    is_binary: cython.bint,
) -> cython.bint:
    """Find the fields of the header p[start:end]. Returns False if the general decoder must read
    it.
    """
    slot: cython.int
    for slot in range(SLOTS):
        header._size[slot] = -1
    header.code = header.flag = header.opaque = header.field_count = 0
    header.is_escaped = False
    if is_binary:
        return _scan_binary(header, p, start, end)
    return (is_ascii(p, start, end) or _is_text(p, start, end)) and _scan_json(
        header, p, start, end
    )


@cython.cfunc
def _is_text(p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Return whether p[at:end] is valid UTF-8."""
    try:
        text(p, at, end - at)
    except UnicodeDecodeError:
        return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _scan_json(
    header: HeaderView, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Scan the one shape that `header_scan` knows: a flat object of numbers and texts with
    `extFields` as the only nested object.
    """
    key: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    value: cython.Py_ssize_t
    byte: cython.int
    number: cython.longlong
    is_negative: cython.bint
    is_escaped: cython.bint
    is_inside: cython.bint = False
    has_fields: cython.bint = False
    needs_comma: cython.bint = False
    slot: cython.int
    stops: cython.p_const_uchar = STOPS
    if at >= end or p[at] != OPEN:
        return False
    at += 1
    while at < end:
        byte = p[at]
        if byte == COMMA:
            if not needs_comma or at + 1 >= end or p[at + 1] != QUOTE:
                return False
            needs_comma = False
            at += 1
            continue
        if byte == CLOSE:
            at += 1
            needs_comma = True
            if not is_inside:
                return at == end
            is_inside = False
            continue
        if byte != QUOTE or needs_comma:
            return False
        key = at + 1
        at = find(p, key, end, QUOTE)
        key_size = at - key
        if at + 2 >= end or p[at + 1] != COLON or find(p, key, at, BACKSLASH) != at:
            return False
        at += 2
        byte = p[at]
        needs_comma = True
        if byte == QUOTE:
            at += 1
            value = at
            is_escaped = False
            while at < end:
                if not stops[p[at]]:
                    at += 1
                elif p[at] == BACKSLASH:
                    is_escaped = True
                    at += 2
                else:
                    break
            if at >= end or p[at] != QUOTE:
                return False
            if is_inside:
                if header.notes_fields and not _note(header, key, key_size, value, at - value):
                    return False
                slot = _slot(p, key, key_size)
                if slot >= 0:
                    if header._size[slot] >= 0:
                        return False
                    header._at[slot] = value
                    header._size[slot] = at - value
                if is_escaped:
                    if slot != PROPERTIES:
                        return False
                    header.is_escaped = True
            elif is_escaped or not _is_known_member(p, key, key_size, value, at - value):
                return False
            at += 1
        elif byte == OPEN:
            if has_fields or key_size != 9 or not same(p, key, b"extFields", 9):
                return False
            has_fields = is_inside = True
            needs_comma = False
            at += 1
        else:
            is_negative = byte == 45
            if is_negative:
                at += 1
            value = at
            number = 0
            while at < end and at - value < 10 and 48 <= p[at] <= 57:
                number = number * 10 + (p[at] - 48)
                at += 1
            if (
                is_inside
                or at >= end
                or (p[at] != COMMA and p[at] != CLOSE)
                or at == value
                or (p[value] == 48 and at - value > 1)
            ):
                return False
            if number > 2147483647:
                return False
            if is_negative:
                number = -number
            if key_size == 4 and same(p, key, b"code", 4):
                header.code = number
            elif key_size == 4 and same(p, key, b"flag", 4):
                header.flag = number
            elif key_size == 6 and same(p, key, b"opaque", 6):
                header.opaque = number
            elif key_size != 7 or not same(p, key, b"version", 7):
                return False
    return False


@cython.cfunc
@cython.exceptval(check=False)
def _is_known_member(
    p: cython.p_const_uchar,
    key: cython.Py_ssize_t,
    key_size: cython.Py_ssize_t,
    value: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.bint:
    """Return whether a text member of the header is a known one that can be ignored."""
    if key_size == 8:
        return same(p, key, b"language", 8)
    if key_size == 6:
        return same(p, key, b"remark", 6)
    return (
        key_size == 23
        and size == 4
        and same(p, key, b"serializeTypeCurrentRPC", 23)
        and same(p, value, b"JSON", 4)
    )


@cython.cfunc
def _scan_binary(
    header: HeaderView, p: cython.p_const_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> cython.bint:
    """Scan a header in the layout of `header_binary`, without a remark."""
    key: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    size: cython.longlong
    slot: cython.int
    if end - at < BINARY_SIZE_MIN or get32(p, at + 13) != 0:
        return False
    header.code = p[at] << 8 | p[at + 1]
    header.opaque = signed32(p, at + 5)
    header.flag = signed32(p, at + 9)
    size = get32(p, at + 17)
    at += BINARY_SIZE_MIN
    if size > end - at:
        return False
    end = at + size
    is_plain: cython.bint = is_ascii(p, at, end)
    while at < end:
        if end - at < 2:
            return False
        key = at + 2
        key_size = p[at] << 8 | p[at + 1]
        at = key + key_size + 4
        if at > end:
            return False
        size = get32(p, at - 4)
        if size > end - at:
            return False
        if not is_plain and not (_is_text(p, key, key + key_size) and _is_text(p, at, at + size)):
            return False
        if header.notes_fields and not _note(header, key, key_size, at, size):
            return False
        slot = _slot(p, key, key_size)
        if slot >= 0:
            if header._size[slot] >= 0:
                return False
            header._at[slot] = at
            header._size[slot] = size
        at += size
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _note(
    header: HeaderView,
    name: cython.Py_ssize_t,
    name_size: cython.Py_ssize_t,
    value: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.bint:
    """Note where a field is. Returns False if there are too many."""
    count: cython.int = header.field_count
    if count == FIELDS_MAX:
        return False
    header.name_at[count] = name
    header.name_size[count] = name_size
    header.value_at[count] = value
    header.value_size[count] = size
    header.field_count = count + 1
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _slot(p: cython.p_const_uchar, key: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    """Return the slot of the field with that name, or -1 if no reader needs it."""
    slot: cython.int
    if size == 1:
        slot = p[key] - 97
        return slot if 0 <= slot < LETTERS else -1
    if size == 5:
        return TOPIC if same(p, key, b"topic", 5) else MSG_ID if same(p, key, b"msgId", 5) else -1
    if size == 7:
        return (
            QUEUE_ID
            if same(p, key, b"queueId", 7)
            else SYS_FLAG
            if same(p, key, b"sysFlag", 7)
            else -1
        )
    if size == 10:
        return (
            MAX_MSG_NUMS
            if same(p, key, b"maxMsgNums", 10)
            else SUB_VERSION
            if same(p, key, b"subVersion", 10)
            else -1
        )
    if size == 11:
        return QUEUE_OFFSET if same(p, key, b"queueOffset", 11) else -1
    if size == 12:
        return (
            COMMIT_OFFSET
            if same(p, key, b"commitOffset", 12)
            else SUBSCRIPTION
            if same(p, key, b"subscription", 12)
            else -1
        )
    if size == 13:
        if same(p, key, b"consumerGroup", 13):
            return CONSUMER_GROUP
        return (
            PRODUCER_GROUP
            if same(p, key, b"producerGroup", 13)
            else TRANSACTION_ID
            if same(p, key, b"transactionId", 13)
            else -1
        )
    if size == 14:
        return EXPRESSION_TYPE if same(p, key, b"expressionType", 14) else -1
    if size == 15:
        return LOG_OFFSET if same(p, key, b"commitLogOffset", 15) else -1
    if size == 16:
        return OUTCOME if same(p, key, b"commitOrRollback", 16) else -1
    if size == 20:
        if same(p, key, b"suspendTimeoutMillis", 20):
            return SUSPEND_TIMEOUT
        return TABLE_OFFSET if same(p, key, b"tranStateTableOffset", 20) else -1
    return -1


@cython.cfunc
@cython.exceptval(check=False)
def read_send(header: HeaderView, p: cython.p_const_uchar) -> cython.bint:
    """Read the fields of a SEND_MESSAGE_V2. Returns False if a required field is missing or not a
    plain number.
    """
    if header._size[0] < 0 or header._size[1] < 0 or header._size[2] < 0:
        return False
    header._is_bad = False
    _number(header, p, 3, DIGITS_32, True)
    header.queue_id = _number(header, p, 4, DIGITS_32, True)
    header.sys_flag = _number(header, p, 5, DIGITS_32, True)
    header.born_time_ms = _number(header, p, 6, DIGITS_64, True)
    header.message_flag = _number(header, p, 7, DIGITS_32, True)
    header.reconsume_times = _number(header, p, 9, DIGITS_32, False)
    header.topic_at = header._at[1]
    header.topic_size = header._size[1]
    header.properties_at = header._at[PROPERTIES]
    header.properties_size = header._size[PROPERTIES]
    header.is_batch = header._size[12] == 4 and _is_true(p, header._at[12])
    return not header._is_bad


@cython.cfunc
@cython.exceptval(check=False)
def read_pull(header: HeaderView, p: cython.p_const_uchar) -> cython.bint:
    """Read the fields of a pull. Returns False if a required field is missing or not a plain
    number.
    """
    if header._size[CONSUMER_GROUP] < 0 or header._size[TOPIC] < 0:
        return False
    header._is_bad = False
    header.queue_id = _number(header, p, QUEUE_ID, DIGITS_32, True)
    header.queue_offset = _number(header, p, QUEUE_OFFSET, DIGITS_64, True)
    header.count_max = _number(header, p, MAX_MSG_NUMS, DIGITS_32, True)
    header.sys_flag = _number(header, p, SYS_FLAG, DIGITS_32, True)
    header.commit_offset = _number(header, p, COMMIT_OFFSET, DIGITS_64, True)
    header.suspend_ms = _number(header, p, SUSPEND_TIMEOUT, DIGITS_64, True)
    header.sub_version = _number(header, p, SUB_VERSION, DIGITS_64, True)
    header.group_at = header._at[CONSUMER_GROUP]
    header.group_size = header._size[CONSUMER_GROUP]
    header.topic_at = header._at[TOPIC]
    header.topic_size = header._size[TOPIC]
    header.subscription_at = header._at[SUBSCRIPTION]
    header.subscription_size = header._size[SUBSCRIPTION]
    header.type_at = header._at[EXPRESSION_TYPE]
    header.type_size = header._size[EXPRESSION_TYPE]
    return not header._is_bad


@cython.cfunc
@cython.exceptval(check=False)
def read_end(header: HeaderView, p: cython.p_const_uchar) -> cython.bint:
    """Read the fields of an END_TRANSACTION. Returns False if a required field is missing or not a
    plain number.
    """
    if header._size[PRODUCER_GROUP] < 0 or header._size[MSG_ID] < 0:
        return False
    header._is_bad = False
    header.queue_offset = _number(header, p, TABLE_OFFSET, DIGITS_64, True)
    header.commit_log_offset = _number(header, p, LOG_OFFSET, DIGITS_64, True)
    header.outcome = _number(header, p, OUTCOME, DIGITS_32, True)
    header.group_at = header._at[PRODUCER_GROUP]
    header.group_size = header._size[PRODUCER_GROUP]
    header.transaction_id_at = header._at[TRANSACTION_ID]
    header.transaction_id_size = header._size[TRANSACTION_ID]
    return not header._is_bad


@cython.cfunc
@cython.exceptval(check=False)
def _number(
    header: HeaderView,
    p: cython.p_const_uchar,
    slot: cython.int,
    digits_max: cython.Py_ssize_t,
    is_required: cython.bint,
) -> cython.longlong:
    """Return the number in a field, 0 if an optional one is absent; mark the header as bad if it
    cannot be read.
    """
    at: cython.Py_ssize_t = header._at[slot]
    end: cython.Py_ssize_t = at + header._size[slot]
    value: cython.longlong = 0
    if end < at:
        header._is_bad |= is_required
        return 0
    is_negative: cython.bint = end > at and p[at] == 45
    if is_negative:
        at += 1
    if at == end or end - at > digits_max:
        header._is_bad = True
        return 0
    while at < end:
        if p[at] < 48 or p[at] > 57:
            header._is_bad = True
            return 0
        value = value * 10 + (p[at] - 48)
        at += 1
    return -value if is_negative else value


@cython.cfunc
@cython.exceptval(check=False)
def _is_true(p: cython.p_const_uchar, at: cython.Py_ssize_t) -> cython.bint:
    """Return whether p[at:at+4] is "true", in any case."""
    return (
        (p[at] | 32) == 116
        and (p[at + 1] | 32) == 114
        and (p[at + 2] | 32) == 117
        and (p[at + 3] | 32) == 101
    )
