"""The settings that name server modules read at each use, since an operator may change them at run
time.
"""

from __future__ import annotations

from typing import Protocol


class NameServerSwitches(Protocol):
    """The settings that decide how requests are handled."""

    @property
    def order_message_enable(self) -> bool:
        """Whether routes include the order configuration of their topic."""
        ...

    @property
    def return_order_topic_config_to_broker(self) -> bool:
        """Whether the reply to a registration includes the order configuration."""
        ...

    @property
    def support_acting_master(self) -> bool:
        """Whether routes present the first slave as master if there is none."""
        ...

    @property
    def enable_all_topic_list(self) -> bool:
        """Whether the list of all topics is available."""
        ...

    @property
    def enable_topic_list(self) -> bool:
        """Whether the other lists of topics are available."""
        ...

    @property
    def notify_min_broker_id_changed(self) -> bool:
        """Whether brokers are notified of a new lowest id in their group."""
        ...

    @property
    def delete_topic_with_broker_registration(self) -> bool:
        """Whether a registration deletes the broker's topics that it does not name."""
        ...

    @property
    def need_wait_for_service(self) -> bool:
        """Whether routes are refused until brokers had time to register."""
        ...

    @property
    def wait_seconds_for_service(self) -> int:
        """How long, from the start on."""
        ...


class ConfigurationText(Protocol):
    """The whole configuration as operators read and change it."""

    def render(self) -> str:
        """Return every `key=value`, one per line, sorted."""
        ...

    def update(self, properties_text: str) -> None:
        """Set the given properties; RequestRefusedError if that is not allowed."""
        ...
