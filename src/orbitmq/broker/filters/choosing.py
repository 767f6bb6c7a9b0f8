"""Which filter a pull has: by its tags, by the expression that it brings, or by that of its group's heartbeats.

Refuses, as the original does, what cannot be used. Where the original lets every message pass because an expression that came with a pull
cannot be read, the pull is refused here, with what is wrong.
"""

from __future__ import annotations

from typing import Protocol

from orbitmq.broker.filters.consumer_filters import ConsumerFilters, expression_problem, usable
from orbitmq.broker.filters.message_filters import ExpressionFilter, RetryFilter
from orbitmq.common.errors import ExpressionIllegal, RequestRefused
from orbitmq.common.topic_names import RETRY_PREFIX
from orbitmq.message.sql.expression import shown
from orbitmq.protocol.bodies.subscriptions import SubscriptionData, is_tag_type
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.reads import MessageFilter, TagsFilter


class FilterSettings(Protocol):
    """What of the configuration filters look at."""

    @property
    def enable_property_filter(self) -> bool: ...
    @property
    def filter_support_retry(self) -> bool: ...


class Filters:
    """The filters of pulls."""

    def __init__(self, settings: FilterSettings, known: ConsumerFilters) -> None:
        self._settings = settings
        self._known = known

    def of_pull(self, group: str, subscription: SubscriptionData, version: int, *, is_own: bool) -> MessageFilter | None:
        """The filter of a pull of that group and subscription, which came with it, `is_own`, or is the group's; None: it gets all.

        `version` is that of the subscription that the client has.
        """
        is_by_tags, topic, codes = is_tag_type(subscription.expression_type), subscription.topic, subscription.wanted_codes
        chosen: MessageFilter | None = None
        if not is_by_tags:
            chosen = self._own(subscription) if is_own else self._registered(group, subscription, version)
        elif codes is not None:
            chosen = TagsFilter(codes)
        if self._settings.filter_support_retry and topic.startswith(RETRY_PREFIX):
            return RetryFilter(codes, topic.removeprefix(RETRY_PREFIX), self._known.find, self._known.cost_max)
        return chosen

    def _own(self, subscription: SubscriptionData) -> MessageFilter:
        kind, text = subscription.expression_type or "", subscription.sub_string or ""
        self._check_enabled(kind)
        try:
            return ExpressionFilter(usable(kind, text))
        except ExpressionIllegal as problem:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: of topic {subscription.topic} the {kind} expression {shown(text)!r} "
                f"cannot be used: {problem}",
            ) from problem

    def _registered(self, group: str, subscription: SubscriptionData, version: int) -> MessageFilter:
        kind, topic = subscription.expression_type or "", subscription.topic
        known = self._known.find(topic, group)
        if known is None:
            why = expression_problem(kind, subscription.sub_string) or "the next heartbeat brings it"
            raise RequestRefused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"The broker's consumer filter data is not exist!Your expression may be wrong! Of group {group} and topic {topic}: {why}",
            )
        if known.data.client_version < version:
            raise RequestRefused(
                ResponseCode.FILTER_DATA_NOT_LATEST,
                f"the consumer's consumer filter data not latest: known is version {known.data.client_version} of {group}; "
                "the next heartbeat brings it",
            )
        self._check_enabled(kind)
        return ExpressionFilter(known.expression, known.data)

    def _check_enabled(self, kind: str) -> None:
        if not self._settings.enable_property_filter:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}: set enablePropertyFilter=true in its configuration, "
                "or subscribe by tags",
            )
