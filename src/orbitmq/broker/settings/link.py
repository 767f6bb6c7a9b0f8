"""The keys of a broker's link to its name servers: where they are, how and when it registers with them."""

# ruff: noqa: RUF009 - `key` is `dataclasses.field`
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from orbitmq.common.config import APACHE_5, OWN, Long, Settings, key

PERIOD_MS_MIN: Final = 10_000
PERIOD_MS_MAX: Final = 60_000


@dataclass(frozen=True, kw_only=True)
class LinkSettings(Settings):
    """Name servers, and registrations with them."""

    SECTION: ClassVar[str] = "brokerConfig"

    namesrv_addr: str | None = key(
        None,
        "The name servers, as `host:port;host:port`. Without any the broker serves, and nobody finds it by its topics. `NAMESRV_ADDR` is "
        "its default, as in the original.",
        dynamic=True,
        important=True,
        original_env="NAMESRV_ADDR",
    )
    fetch_name_srv_addr_by_dns_lookup: bool = key(
        False,
        "Whether each host in `namesrvAddr` is a name whose every address is a name server.",
        important=True,
        releases=APACHE_5,
        dynamic=True,
    )
    fetch_namesrv_addr_by_address_server: bool = key(
        False, "Whether, without `namesrvAddr`, an address server is asked for the name servers.", important=True
    )
    fetch_namesrv_addr_interval: Long = key(
        10_000, "How often the address server is asked, ms.", minimum=1000, dynamic=True, releases=APACHE_5
    )
    update_name_server_addr_period: int = key(
        120_000, "How often `namesrvAddr` is looked at again, and its names looked up, ms.", minimum=1000, dynamic=True, releases=APACHE_5
    )
    register_name_server_period: int = key(
        30_000, f"How often the broker registers, ms; taken as at least {PERIOD_MS_MIN} and at most {PERIOD_MS_MAX}.", dynamic=True
    )
    register_broker_timeout_mills: int = key(
        24_000, "How long one name server may take to answer a registration, ms. 6000 in 4.9.", minimum=1, dynamic=True
    )
    force_register: bool = key(
        True, "Whether every period registers in full; otherwise the name server is asked first whether its version differs.", dynamic=True
    )
    compressed_register: bool = key(
        False,
        "Whether registrations are compressed. Name servers of 5.x read them, though not those of the original's own 5.3 to 5.5 brokers; "
        "one that does not, as those of 4.9, gets them as they are.",
        dynamic=True,
    )
    enable_single_topic_register: bool = key(
        False,
        "Whether a changed topic is told to name servers by a request for the topic alone, which only those of 5.x know.",
        dynamic=True,
        releases=APACHE_5,
    )
    enable_split_registration: bool = key(
        False, "Whether a registration brings `splitRegistrationSize` topics at a time.", dynamic=True, releases=APACHE_5
    )
    split_registration_size: int = key(800, "See `enableSplitRegistration`.", minimum=2, dynamic=True, releases=APACHE_5)
    broker_permission: int = key(
        6,
        "What may be done here: 4 = read, 2 = write, 6 = both. What it lacks no topic has in the routes that clients get.",
        minimum=0,
        maximum=7,
        dynamic=True,
    )

    @property
    def register_period_ms(self) -> int:
        """How often the broker registers, within the bounds."""
        return min(max(self.register_name_server_period, PERIOD_MS_MIN), PERIOD_MS_MAX)


@dataclass(frozen=True, kw_only=True)
class AddressServerSettings(Settings):
    """What the original takes from JVM properties to find name servers, and to say where it stands."""

    SECTION: ClassVar[str] = "orbitmq"

    address_server: str = key(
        "jmenv.tbsite.net",
        "Host, or host:port, of the address server that `fetchNamesrvAddrByAddressServer` asks.",
        name="rocketmq.namesrv.domain",
        releases=OWN,
    )
    address_server_group: str = key("nsaddr", "The group asked for there.", name="rocketmq.namesrv.domain.subgroup", releases=OWN)
    rmq_address_server_domain: str = key("", "The same as `rocketmq.namesrv.domain`, and stronger: the original's name for it in files.")
    rmq_address_server_sub_group: str = key("", "The same as `rocketmq.namesrv.domain.subgroup`, and stronger.")
    zone: str | None = key(
        None,
        "The zone that the broker registers in, for clients that want brokers of their own zone.",
        name="rocketmq.zone",
        releases=OWN,
        original_env="ROCKETMQ_ZONE",
    )


@dataclass(frozen=True, kw_only=True)
class LinkKeys(LinkSettings, AddressServerSettings):
    """Every key that the link depends on."""
