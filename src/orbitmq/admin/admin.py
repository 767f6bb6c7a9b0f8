"""Admin: all operations on one session. Each operations module is imported on first use, so that no
command pays for the others.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from orbitmq.admin.calls import Calls
from orbitmq.client.session.client_session import Cluster, SessionUser

if TYPE_CHECKING:
    from orbitmq.admin.access import AccessOperations
    from orbitmq.admin.cluster import ClusterOperations
    from orbitmq.admin.dead_letters import DeadLetterOperations
    from orbitmq.admin.groups import GroupOperations
    from orbitmq.admin.messages import MessageOperations
    from orbitmq.admin.name_servers import NameServerOperations
    from orbitmq.admin.offsets import OffsetOperations
    from orbitmq.admin.timers import TimerOperations
    from orbitmq.admin.topics import TopicOperations
    from orbitmq.admin.transactions import TransactionOperations


class Admin(SessionUser):
    """Operations on a cluster, with its own session or a shared one."""

    def __init__(self, cluster: Cluster = "") -> None:
        super().__init__(cluster)
        self._calls = Calls(self.session)

    async def start(self) -> None:
        """Find the name servers."""
        await self.session.start()

    @cached_property
    def access(self) -> AccessOperations:
        from orbitmq.admin.access import AccessOperations

        return AccessOperations(self._calls)

    @cached_property
    def cluster(self) -> ClusterOperations:
        from orbitmq.admin.cluster import ClusterOperations

        return ClusterOperations(self._calls)

    @cached_property
    def name_servers(self) -> NameServerOperations:
        from orbitmq.admin.name_servers import NameServerOperations

        return NameServerOperations(self._calls)

    @cached_property
    def topics(self) -> TopicOperations:
        from orbitmq.admin.topics import TopicOperations

        return TopicOperations(self._calls, self.name_servers)

    @cached_property
    def groups(self) -> GroupOperations:
        from orbitmq.admin.groups import GroupOperations

        return GroupOperations(self._calls, self.topics)

    @cached_property
    def offsets(self) -> OffsetOperations:
        from orbitmq.admin.offsets import OffsetOperations

        return OffsetOperations(self._calls, self.topics, self.groups)

    @cached_property
    def messages(self) -> MessageOperations:
        from orbitmq.admin.messages import MessageOperations

        return MessageOperations(self._calls, self.topics, self.groups, self.offsets)

    @cached_property
    def dead_letters(self) -> DeadLetterOperations:
        from orbitmq.admin.dead_letters import DeadLetterOperations

        return DeadLetterOperations(self._calls, self.topics, self.groups, self.messages)

    @cached_property
    def timers(self) -> TimerOperations:
        from orbitmq.admin.timers import TimerOperations

        return TimerOperations(self._calls)

    @cached_property
    def transactions(self) -> TransactionOperations:
        from orbitmq.admin.transactions import TransactionOperations

        return TransactionOperations(self._calls)
