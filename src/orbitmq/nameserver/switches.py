"""What the name server's rooms read of the configuration, at each use, since an operator may change it while the server runs."""

from __future__ import annotations

from typing import Protocol


class NameServerSwitches(Protocol):
    """The settings that decide how requests are answered."""

    @property
    def order_message_enable(self) -> bool:
        """Whether routes say the order configuration of their topic."""
        ...

    @property
    def return_order_topic_config_to_broker(self) -> bool:
        """Whether the answer to a registration carries the order configuration."""
        ...

    @property
    def support_acting_master(self) -> bool:
        """Whether routes present the first slave as master where there is none."""
        ...

    @property
    def enable_all_topic_list(self) -> bool:
        """Whether the list of all topics is given out."""
        ...

    @property
    def enable_topic_list(self) -> bool:
        """Whether the other lists of topics are given out."""
        ...

    @property
    def notify_min_broker_id_changed(self) -> bool:
        """Whether brokers hear of a new lowest id in their group."""
        ...

    @property
    def delete_topic_with_broker_registration(self) -> bool:
        """Whether a registration takes away the broker's topics that it does not name."""
        ...

    @property
    def need_wait_for_service(self) -> bool:
        """Whether routes are refused until brokers had time to register."""
        ...

    @property
    def wait_seconds_for_service(self) -> int:
        """How long that time is, from the start on."""
        ...


class ConfigurationText(Protocol):
    """The whole configuration as operators read and change it."""

    def render(self) -> str:
        """Every `key=value`, one a line, sorted."""
        ...

    def update(self, properties_text: str) -> None:
        """Set what the properties name; RequestRefused when that may not be."""
        ...
