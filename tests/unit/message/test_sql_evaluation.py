"""Evaluation of SQL92 expressions, rule by rule, as in Apache RocketMQ 5.5.0: true, false, NULL, or
a failure.
"""

from __future__ import annotations

import pytest

from orbitmq.message.sql.expression import compiled

T, F, N, X = "true", "false", "NULL", "fails"

MESSAGE = {
    "five": "5", "six": "6", "half": "5.5", "big": "9999999999", "word": "word", "yes": "true", "YES": "TRUE", "no": "no",
    "spaced": " 5 ", "plus": "+5", "arabic": "٥", "float": "1f", "hexadecimal": "0x1p3", "nan": "NaN", "huge": "1e400",
    "minus_zero": "-0.0", "zero": "0.0", "it": "it's", "TAGS": "red",
}  # fmt: skip


def value_of(expression: str) -> str:
    try:
        value = compiled(expression).evaluate(MESSAGE.get)
    except ValueError:
        return X
    return {True: T, False: F, None: N}[value]


def check(table: str) -> None:
    """Check rows of an expression and its value, separated by two or more spaces."""
    rows = [row.rsplit("  ", 1) for row in table.strip().splitlines()]
    found = [(expression.strip(), value_of(expression.strip())) for expression, _ in rows]
    assert found == [(expression.strip(), expected.strip()) for expression, expected in rows]


def test_equality_with_null_is_lopsided() -> None:
    check("""
        missing = 5            NULL
        5 = missing            false
        missing = other        true
        missing = five         NULL
        five = missing         false
        missing <> other       false
        missing <> five        NULL
        five <> missing        true
        missing <> 5           NULL
    """)


def test_a_property_is_compared_as_the_type_beside_it() -> None:
    check("""
        five = 5                  true
        5 = five                  true
        five = '5'                true
        five = 5.0                true
        5.0 = five                true
        half = 5.5                true
        5.5 = half                true
        half = 5                  fails
        half > 5                  fails
        5 < half                  fails
        half > 5.0                true
        word = 5                  fails
        word > 5.5                fails
        big = 5                   fails
        big = 9999999999          true
        big > 2147483647          fails
        big > 2147483648          true
        big > 5.0                 true
        spaced = 5                fails
        spaced = 5.0              true
        plus = 5                  true
        arabic = 5                true
        arabic = 5.0              fails
        float = 1.0               true
        hexadecimal = 8.0         true
        five = -5                 false
        five > -5                 true
        -5 < five                 true
        five = 'word'             false
        word = 'word'             true
        word = 'WORD'             false
        it = 'it''s'              true
        five = six                false
        five <> six               true
        five <> '6'               true
    """)


def test_doubles_are_ordered_as_in_java() -> None:
    check("""
        nan > 1E300               true
        nan >= 5.5                true
        nan < 5.5                 false
        nan <= 5.5                false
        nan = 5.5                 false
        nan > nan                 false
        nan >= nan                true
        huge > 1E308              true
        minus_zero < zero         true
        zero <= minus_zero        false
        minus_zero = zero         false
    """)


def test_an_order_of_texts_is_one_of_numbers() -> None:
    check("""
        five < six                true
        five < half               true
        five > word               fails
        word < word               fails
        five > missing            NULL
        missing > five            NULL
        word > missing            NULL
        missing > 5               NULL
        5 > missing               NULL
    """)


def test_constants_are_compared_with_each_other() -> None:
    check("""
        1 = 1.0                                  true
        1 < 5000000000                           true
        1.5 < 5000000000                         true
        9007199254740993 = 9007199254740992.0    true
        1 = 'x'                                  fails
        '1' = 1                                  true
        1 = TRUE                                 false
        'x' = TRUE                               false
        'TrUe' = TRUE                            true
        TRUE = TRUE                              true
        TRUE <> FALSE                            true
        - - 5 = 5                                true
        -2147483648 = -2147483648                true
    """)


def test_truths_are_compared_with_texts_behind_them_alone() -> None:
    check("""
        yes = TRUE                true
        YES = TRUE                true
        no = TRUE                 false
        no = FALSE                true
        missing = TRUE            NULL
        TRUE = yes                fails
        TRUE = missing            false
        (five = 5) = 'true'       fails
        'true' = (five = 5)       true
        (five = 5) = TRUE         true
        (five = 5) = 5            false
        5 = (five = 5)            false
        five = 5 = TRUE           true
        five > 1 = TRUE           true
    """)


def test_whether_there_is_a_value_is_true_or_false() -> None:
    check("""
        missing IS NULL           true
        missing IS NOT NULL       false
        five IS NULL              false
        five is not null          true
        5 IS NULL                 false
        NULL IS NULL              true
        TRUE IS NOT NULL          true
        -five IS NULL             true
        -5 IS NULL                false
        missing = 5 IS NULL       true
        (word > 5) IS NULL        fails
        five IS NULL IS NULL      false
    """)


def test_between_is_two_comparisons() -> None:
    check("""
        five BETWEEN 5 AND 6                 true
        five BETWEEN 6 AND 7                 false
        five NOT BETWEEN 5 AND 6             false
        five NOT BETWEEN 6 AND 5             true
        five BETWEEN five AND six            true
        five BETWEEN -10 AND -20             false
        half BETWEEN 5 AND 6                 fails
        half BETWEEN 5.0 AND 6.5             true
        five BETWEEN 1 AND 5.5               true
        missing BETWEEN 1 AND 2              NULL
        five BETWEEN missing AND 2           false
        five BETWEEN missing AND 9           NULL
        1 BETWEEN 1 AND 2                    true
    """)


def test_lists_are_of_texts() -> None:
    check("""
        five IN ('5')                  true
        five IN ('6', '5')             true
        five NOT IN ('6', '5')         false
        five NOT IN ('6')              true
        missing IN ('5')               NULL
        missing NOT IN ('5')           NULL
        (TAGS) IN ('red')              true
        TAGS IN ('RED')                false
    """)


def test_a_search_finds_nothing_in_nothing_and_never_an_empty_text() -> None:
    check("""
        word CONTAINS 'or'             true
        word CONTAINS 'OR'             false
        word NOT CONTAINS 'or'         false
        word NOT CONTAINS 'x'          true
        word STARTSWITH 'wo'           true
        word NOT STARTSWITH 'wo'       false
        word ENDSWITH 'rd'             true
        word NOT ENDSWITH 'rd'         false
        word STARTSWITH 'rd'           false
        missing CONTAINS 'x'           false
        missing NOT CONTAINS 'x'       false
        missing NOT ENDSWITH 'x'       false
        word CONTAINS ''               false
        word NOT CONTAINS ''           false
        5 CONTAINS '5'                 false
        5 NOT CONTAINS 'x'             false
        -five NOT CONTAINS 'x'         false
        'word' CONTAINS 'or'           true
        (word > 5) CONTAINS 'x'        fails
        (word > 5) CONTAINS ''         false
    """)


def test_a_property_is_no_truth_value() -> None:
    check("""
        yes                       false
        missing                   NULL
        NOT yes                   true
        NOT missing               NULL
        NOT five = 5              false
        NOT (five = 5)            false
        NOT missing IS NULL       true
        yes AND TRUE              false
        missing OR TRUE           true
    """)


def test_null_in_logic() -> None:
    check("""
        NULL                      NULL
        NOT NULL                  NULL
        NULL AND TRUE             NULL
        NULL AND FALSE            false
        FALSE AND NULL            false
        NULL OR TRUE              true
        NULL OR FALSE             NULL
        TRUE AND NULL AND FALSE   false
        FALSE OR NULL OR TRUE     true
        TRUE AND TRUE AND TRUE    true
        FALSE OR FALSE            false
        TRUE OR FALSE AND FALSE   true
    """)


def test_what_comes_first_decides_whether_there_is_a_failure() -> None:
    check("""
        TRUE OR word > 5          true
        word > 5 OR TRUE          fails
        FALSE AND word > 5        false
        word > 5 AND FALSE        fails
        missing AND word > 5      fails
        missing = (word > 5)      fails
        missing > -(word > 5)     NULL
    """)


def test_a_minus_sign_is_for_numbers() -> None:
    check("""
        five = -five              false
        missing = -five           true
        five > -'x'               NULL
        missing = -NULL           true
        five > -TRUE              NULL
    """)


@pytest.mark.parametrize("expression", ["word > 5", "missing", "NULL", "FALSE", "five = 6"])
def test_only_what_is_true_matches(expression: str) -> None:
    assert not compiled(expression).matches(MESSAGE.get)
    assert compiled(
        f"{expression} OR TRUE" if expression != "word > 5" else f"TRUE OR {expression}"
    ).matches(MESSAGE.get)


def test_names_of_properties_are_case_sensitive_and_keywords_are_not() -> None:
    assert compiled("TAGS = 'red'").matches(MESSAGE.get)
    assert not compiled("tags = 'red'").matches(MESSAGE.get)
    assert compiled("Tags Is nUlL aNd five beTween 1 And 9 and nOT (five in ('6'))").matches(
        MESSAGE.get
    )


def test_the_first_message_that_cannot_be_compared_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    expression = compiled("logged_once > 5")
    for value in ("5.5", "x", "6"):
        expression.matches({"logged_once": value}.get)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "expression_fails expression='logged_once > 5' why=''5.5' is not an integer':"
    )
