"""Resolves the filter of a pull: by tags, by its own expression, or by that of its group's
heartbeats.

Refuses, as Apache RocketMQ does, what cannot be used. Where Apache RocketMQ lets every message pass
because a pull's own expression cannot be parsed, the pull is refused here, with the cause.
"""

from __future__ import annotations

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.consume.filters.message_filters import ExpressionFilter, RetryFilter
from orbitmq.broker.metadata.consumer_filters import (
    ConsumerFilters,
    expression_problem,
    usable,
)
from orbitmq.common.errors import InvalidExpressionError, Refusal, RefusedError
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.message.sql.expression import shown
from orbitmq.protocol.bodies.subscriptions import SubscriptionData, is_tag_type
from orbitmq.store.reads import MessageFilter, TagsFilter


class FilterResolver:
    """Resolves the filters of pulls."""

    def __init__(self, settings: BrokerConfig, known: ConsumerFilters) -> None:
        self._settings = settings
        self._known = known

    def resolve(
        self, group: str, subscription: SubscriptionData, version: int, *, is_own: bool
    ) -> MessageFilter | None:
        """Return the filter of a group's pull with that subscription, which is the pull's own
        (`is_own`) or the group's; None if it gets all messages.

        `version` is that of the client's subscription.
        """
        is_by_tags, topic, codes = (
            is_tag_type(subscription.expression_type),
            subscription.topic,
            subscription.wanted_codes,
        )
        chosen: MessageFilter | None = None
        if not is_by_tags:
            chosen = (
                self._own(subscription)
                if is_own
                else self._registered(group, subscription, version)
            )
        elif codes is not None:
            chosen = TagsFilter(codes)
        if self._settings.filter_support_retry and topic.startswith(RETRY_PREFIX):
            return RetryFilter(
                codes, topic.removeprefix(RETRY_PREFIX), self._known.find, self._known.cost_max
            )
        return chosen

    def _own(self, subscription: SubscriptionData) -> MessageFilter:
        kind, text = subscription.expression_type or "", subscription.sub_string or ""
        self._check_enabled(kind)
        try:
            return ExpressionFilter(usable(kind, text))
        except InvalidExpressionError as problem:
            raise RefusedError(
                Refusal.INVALID_SUBSCRIPTION,
                f"parse the consumer's subscription failed: of topic {subscription.topic} the"
                f" {kind} expression {shown(text)!r} cannot be used: {problem}",
            ) from problem

    def _registered(
        self, group: str, subscription: SubscriptionData, version: int
    ) -> MessageFilter:
        kind, topic = subscription.expression_type or "", subscription.topic
        known = self._known.find(topic, group)
        if known is None:
            why = (
                expression_problem(kind, subscription.sub_string) or "the next heartbeat brings it"
            )
            raise RefusedError(
                Refusal.NO_FILTER,
                "The broker's consumer filter data is not exist!Your expression may be wrong! Of"
                f" group {group} and topic {topic}: {why}",
            )
        if known.data.client_version < version:
            raise RefusedError(
                Refusal.OLD_FILTER,
                "the consumer's consumer filter data not latest: known is version"
                f" {known.data.client_version} of {group}; the next heartbeat brings it",
            )
        self._check_enabled(kind)
        return ExpressionFilter(known.expression, known.data)

    def _check_enabled(self, kind: str) -> None:
        if not self._settings.enable_property_filter:
            raise RefusedError(
                Refusal.FAILED,
                f"The broker does not support consumer to filter message by {kind}: set"
                " enablePropertyFilter=true in its configuration, or subscribe by tags",
            )
