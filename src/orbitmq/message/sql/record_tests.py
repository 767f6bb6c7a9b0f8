# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# mypy: disallow-untyped-decorators=False, warn-return-any=False
"""Kernel: evaluates an SQL92 expression on a stored record, by the bytes of its properties.

Yields the same as `evaluation` on the record's properties. The common cases, a property compared
with whole numbers or texts, NULL, and logic around them, create no object per record; everything
else is delegated to the functions of `evaluation`.

Each comparison searches its property among all of the record's. If both are too many, the
properties are parsed once, and the whole expression is delegated to `evaluation`.
"""

from collections.abc import Callable
from typing import Any

import cython

from orbitmq.message.properties import parse
from orbitmq.message.sql import tree
from orbitmq.message.sql.comparison import number_of
from orbitmq.message.sql.evaluation import Test, test_of
from orbitmq.message.sql.java_numbers import LONG_MAX, PLAIN_DIGITS_MAX
from orbitmq.message.sql.tree import Node, NumberType

if cython.compiled:
    from cython.cimports.orbitmq.common.mem import find, same, text_bytes
    from cython.cimports.orbitmq.message.record_read import RecordCursor, pointer, value_at
else:
    from orbitmq.common.mem import find, same, text_bytes
    from orbitmq.message.record_read import RecordCursor, pointer, value_at

OTHER = cython.declare(cython.int, 0)
NOT = cython.declare(cython.int, 1)
AND = cython.declare(cython.int, 2)
OR = cython.declare(cython.int, 3)
IS_NULL = cython.declare(cython.int, 4)
ONE_OF = cython.declare(cython.int, 5)
EQUAL = cython.declare(cython.int, 6)
BELOW = cython.declare(cython.int, 7)
UP_TO = cython.declare(cython.int, 8)
ABOVE = cython.declare(cython.int, 9)
FROM = cython.declare(cython.int, 10)
_DIGITS_MAX = cython.declare(cython.Py_ssize_t, PLAIN_DIGITS_MAX)
_VALUE_END = cython.declare(cython.int, 2)
_NULL = cython.declare(cython.int, -1)  # besides 0 and 1
_SIGNS = {"<": BELOW, "<=": UP_TO, ">": ABOVE, ">=": FROM}
_SET_MIN = cython.declare(
    cython.Py_ssize_t, 8
)  # texts of an IN from which on they are hashed, not compared one by one
LOOKUP_WORK_MAX = cython.declare(
    cython.longlong, 1 << 16
)  # bytes of properties that all comparisons of a record may scan
_REPLACEMENT = "\ufffd"  # in a text, it may stand for malformed bytes


class RecordTest:
    """A compiled node of an expression."""

    def __init__(self, kind: int, name: str = "") -> None:
        self.kind = kind
        self.name = name.encode()
        self.operands: list[RecordTest] = []
        self.texts: list[bytes] = []
        self.text_set: Any = None  # the same texts, if there are many
        self.is_negated = False
        self.bound = 0
        self.node: Any = None  # the node that `other` is compiled from
        self.other: Any = None  # the function of `evaluation`, created on first use


class RecordMatcher:
    """An expression of a given cost with its `evaluation` function; `tell` is called with values
    that cannot be compared.
    """

    def __init__(
        self, node: Node, cost: int, evaluate: Test, tell: Callable[[ValueError], None]
    ) -> None:
        self._test = record_test(node)
        self._cost = cost
        self._evaluate = evaluate
        self._tell = tell

    def matches(self, record: RecordCursor) -> bool:
        """Return whether it is true for the record at the cursor; false if NULL or if a value
        cannot be compared.
        """
        p: cython.p_const_uchar = pointer(record)
        try:
            if self._cost * record.properties_size > LOOKUP_WORK_MAX:
                return self._evaluate(parse(record.properties()).get) is True
            return _value(self._test, record, p) == 1
        except ValueError as problem:
            self._tell(problem)
            return False


def record_test(node: Node) -> RecordTest:
    """Return the test that evaluates a node."""
    made: RecordTest | None = None
    if isinstance(node, tree.And | tree.Or):
        made = RecordTest(AND if isinstance(node, tree.And) else OR)
        made.operands = [record_test(each) for each in node.operands]
    elif isinstance(node, tree.Not):
        made = RecordTest(NOT)
        made.operands = [record_test(node.operand)]
    elif isinstance(node, tree.IsNull) and isinstance(node.operand, tree.PropertyRef):
        made = _of_property(IS_NULL, node.operand)
    elif isinstance(node, tree.OneOf):
        made = _one_of(node.operand, node.texts, node.negated)
    elif isinstance(node, tree.Equal) and isinstance(node.left, tree.PropertyRef):
        right = node.right
        made = (
            _one_of(node.left, [right.value], False)
            if isinstance(right, tree.Text)
            else _compared(EQUAL, node.left, right, node)
        )
    elif isinstance(node, tree.Ordered) and isinstance(node.left, tree.PropertyRef):
        made = _compared(_SIGNS[node.sign], node.left, node.right, node)
    if made is None:
        made = RecordTest(OTHER)
        made.node = node
    return made


def _of_property(kind: int, operand: tree.PropertyRef) -> RecordTest | None:
    """Return a test of a property; None for a name that no record can have."""
    return RecordTest(kind, operand.name) if _is_plain(operand.name) else None


def _is_plain(text: str) -> bool:
    """Return whether equal text implies equal bytes and vice versa."""
    return _REPLACEMENT not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def _one_of(operand: tree.PropertyRef, texts: Any, is_negated: bool) -> RecordTest | None:
    made = _of_property(ONE_OF, operand)
    if made is None or not all(map(_is_plain, texts)):
        return None
    made.texts = [each.encode() for each in texts]
    made.text_set = frozenset(made.texts) if len(made.texts) >= _SET_MIN else None
    made.is_negated = is_negated
    return made


def _compared(kind: int, left: tree.PropertyRef, right: Node, node: Node) -> RecordTest | None:
    number = number_of(right)
    if (
        number is None
        or number.type is NumberType.DOUBLE
        or not -LONG_MAX <= number.value <= LONG_MAX
    ):
        return None
    made = _of_property(kind, left)
    if made is not None:
        made.bound = int(number.value)
        made.node = node  # for texts that are not just digits
    return made


@cython.cfunc
@cython.exceptval(-2)
def _value(test: RecordTest, record: RecordCursor, p: cython.p_const_uchar) -> cython.int:
    """Return 1, 0, or -1 for NULL."""
    if test.kind == AND or test.kind == OR:
        return _chain(test, record, p, 1 if test.kind == OR else 0)
    if test.kind == OTHER:
        return _other(test, record)
    if test.kind == NOT:
        return _not(_value(_first(test), record, p))
    end: cython.Py_ssize_t = record.properties_at + record.properties_size
    at: cython.Py_ssize_t = value_at(p, record.properties_at, end, test.name, len(test.name))
    if test.kind == IS_NULL:
        return 1 if at < 0 else 0
    if at < 0:
        return _NULL
    size: cython.Py_ssize_t = find(p, at, end, _VALUE_END) - at
    if test.kind == ONE_OF:
        return _is_one_of(test, p, at, size)
    if size > _DIGITS_MAX:
        return _other(test, record)
    number: cython.longlong = 0
    i: cython.Py_ssize_t
    for i in range(at, at + size):
        if p[i] < 48 or p[i] > 57:
            return _other(test, record)
        number = number * 10 + (p[i] - 48)
    if test.kind == EQUAL:
        return number == test.bound
    if test.kind == BELOW:
        return number < test.bound
    if test.kind == UP_TO:
        return number <= test.bound
    return number > test.bound if test.kind == ABOVE else number >= test.bound


@cython.cfunc
def _first(test: RecordTest) -> RecordTest:
    return test.operands[0]


@cython.cfunc
@cython.exceptval(-2)
def _not(value: cython.int) -> cython.int:
    return value if value < 0 else 1 - value


@cython.cfunc
@cython.exceptval(-2)
def _chain(
    test: RecordTest, record: RecordCursor, p: cython.p_const_uchar, decides: cython.int
) -> cython.int:
    """Evaluate AND or OR from the left up to the first operand that decides."""
    result: cython.int = 1 - decides
    value: cython.int
    operand: RecordTest
    for operand in test.operands:
        value = _value(operand, record, p)
        if value == decides:
            return decides
        if value < 0:
            result = _NULL
    return result


@cython.cfunc
@cython.exceptval(-2)
def _is_one_of(
    test: RecordTest, p: cython.p_const_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.int:
    text: bytes
    if test.text_set is not None:
        return (text_bytes(p, at, size) in test.text_set) != test.is_negated
    for text in test.texts:
        if len(text) == size and same(p, at, text, size):
            return 0 if test.is_negated else 1
    return 1 if test.is_negated else 0


@cython.cfunc
@cython.exceptval(-2)
def _other(test: RecordTest, record: RecordCursor) -> cython.int:
    """Delegate to `evaluation`."""
    if test.other is None:
        test.other = test_of(test.node)
    value: Any = test.other(record.property)
    return _NULL if value is None else 1 if value else 0
