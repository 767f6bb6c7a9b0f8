"""Subscriptions from expressions, as the original's clients and brokers make them."""

from __future__ import annotations

import pytest

from orbitmq.broker.clients.subscriptions import build_subscription
from orbitmq.common.errors import RefusedError
from orbitmq.protocol.bodies.subscriptions import SubscriptionData
from orbitmq.protocol.codes import REFUSAL_CODES, ResponseCode


@pytest.mark.parametrize("expression", [None, "", "*"])
@pytest.mark.parametrize("kind", [None, "TAG"])
def test_no_expression_means_all_messages(expression: str | None, kind: str | None) -> None:
    built = build_subscription("T", expression, kind, 7)
    assert built == SubscriptionData("T", "*", 7)
    assert built.wanted_codes is None


def test_tags_are_trimmed_counted_once_and_known_by_their_java_hash() -> None:
    built = build_subscription("T", " TagA ||TagB|| || TagA\t|| 标签")
    assert built.tags == ("TagA", "TagB", "标签")
    assert built.codes == (2598919, 2598920, 857175)
    assert built.sub_string == " TagA ||TagB|| || TagA\t|| 标签"


def test_tags_with_one_hash_have_one_code() -> None:
    built = build_subscription("T", "Aa||BB")
    assert (built.tags, built.codes) == (("Aa", "BB"), (2112,))


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("a|b", ("a|b",)), ("|||", ("|",)), (" ", ()), ("|| ||", ()), ("*||a", ("*", "a"))],
)
def test_odd_expressions_mean_what_they_mean_to_the_original(
    expression: str, tags: tuple[str, ...]
) -> None:
    built = build_subscription("T", expression)
    assert built.tags == tags
    assert built.wanted_codes is not None
    assert len(built.wanted_codes) == len(tags)


def test_an_expression_of_another_type_is_kept_as_it_is() -> None:
    built = build_subscription("T", "a > 1 || b", "SQL92", 3)
    assert built == SubscriptionData("T", "a > 1 || b", 3, expression_type="SQL92")
    assert built.wanted_codes is None


@pytest.mark.parametrize(
    ("expression", "kind"), [("||", None), ("||||", "TAG"), (None, "SQL92"), ("", "SQL92")]
)
def test_an_expression_that_spells_nothing_is_refused(
    expression: str | None, kind: str | None
) -> None:
    with pytest.raises(RefusedError) as refused:
        build_subscription("T", expression, kind)
    assert REFUSAL_CODES[refused.value.refusal] == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert "T" in refused.value.remark
