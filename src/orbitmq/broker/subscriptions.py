"""Subscriptions from expressions, as a pull that brings its own makes them.

Knows tags only: an expression of another type is kept as it is, and compiled by whoever filters.
"""

from __future__ import annotations

from orbitmq.common.errors import MessageIllegal, RequestRefused
from orbitmq.message.tag_expression import tags_of
from orbitmq.message.tags import java_hash
from orbitmq.protocol.bodies.subscriptions import SUBSCRIBE_ALL, TAG, SubscriptionData
from orbitmq.protocol.codes import ResponseCode


def build_subscription(topic: str, expression: str | None, expression_type: str | None = None, version: int = 0) -> SubscriptionData:
    """The subscription of a topic that the expression spells: all messages, any of some tags (`a || b`), or what another type means.

    SUBSCRIPTION_PARSE_FAILED when it spells none.
    """
    if expression_type is not None and expression_type != TAG:
        if not expression:
            raise _no_expression(f"a subscription of type {expression_type} needs an expression, and the one of {topic} has none")
        return SubscriptionData(topic, expression, version, expression_type=expression_type)
    try:
        tags = tags_of(expression)
    except MessageIllegal as error:
        raise _no_expression(f"of topic {topic} {error}") from error
    if tags is None:
        return SubscriptionData(topic, SUBSCRIBE_ALL, version)
    return SubscriptionData(topic, expression, version, tags, tuple(dict.fromkeys(map(java_hash, tags))))


def _no_expression(remark: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {remark}")
