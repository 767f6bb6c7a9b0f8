"""Builds subscriptions from expressions, for pulls that carry their own.

Knows tags only: an expression of another type is kept unchanged, and compiled by its filter.
"""

from __future__ import annotations

from orbitmq.common.errors import InvalidMessageError, Refusal, RefusedError
from orbitmq.message.tag_expression import tags_of
from orbitmq.message.tags import java_hash
from orbitmq.protocol.bodies.subscriptions import SUBSCRIBE_ALL, TAG, SubscriptionData


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = None, version: int = 0
) -> SubscriptionData:
    """Return the subscription to a topic by an expression: all messages, any of some tags (`a ||
    b`), or what another type means.

    Raises SUBSCRIPTION_PARSE_FAILED if the expression is invalid.
    """
    if expression_type is not None and expression_type != TAG:
        if not expression:
            raise _no_expression(
                f"a subscription of type {expression_type} needs an expression, and the one of"
                f" {topic} has none"
            )
        return SubscriptionData(topic, expression, version, expression_type=expression_type)
    try:
        tags = tags_of(expression)
    except InvalidMessageError as error:
        raise _no_expression(f"of topic {topic} {error}") from error
    if tags is None:
        return SubscriptionData(topic, SUBSCRIBE_ALL, version)
    return SubscriptionData(
        topic, expression, version, tags, tuple(dict.fromkeys(map(java_hash, tags)))
    )


def _no_expression(remark: str) -> RefusedError:
    return RefusedError(
        Refusal.INVALID_SUBSCRIPTION,
        f"parse the consumer's subscription failed: {remark}",
    )
