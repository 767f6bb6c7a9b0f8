"""Keys of the link to the name servers: their addresses, and when and how the broker registers."""

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
        "Name servers, as `host:port;host:port`. Without any, clients cannot find the broker by its"
        " topics. Defaults to `NAMESRV_ADDR`, as in Apache.",
        dynamic=True,
        important=True,
        original_env="NAMESRV_ADDR",
    )
    fetch_name_srv_addr_by_dns_lookup: bool = key(
        False,
        "Whether host names in `namesrvAddr` are resolved, every address being a name server.",
        important=True,
        releases=APACHE_5,
        dynamic=True,
    )
    fetch_namesrv_addr_by_address_server: bool = key(
        False,
        "Whether an address server provides the name servers if `namesrvAddr` is not set.",
        important=True,
    )
    fetch_namesrv_addr_interval: Long = key(
        10_000,
        "Interval of requests to the address server, ms.",
        minimum=1000,
        dynamic=True,
        releases=APACHE_5,
    )
    update_name_server_addr_period: int = key(
        120_000,
        "Interval of reading and resolving `namesrvAddr` again, ms.",
        minimum=1000,
        dynamic=True,
        releases=APACHE_5,
    )
    register_name_server_period: int = key(
        30_000,
        f"Interval of registrations, ms; at least {PERIOD_MS_MIN} and at most {PERIOD_MS_MAX} is"
        " used.",
        dynamic=True,
    )
    register_broker_timeout_mills: int = key(
        24_000,
        "Timeout of a registration at one name server, ms. 6000 in 4.9.",
        minimum=1,
        dynamic=True,
    )
    force_register: bool = key(
        True,
        "Whether every interval sends a full registration; otherwise only if the name server has"
        " another version.",
        dynamic=True,
    )
    compressed_register: bool = key(
        False,
        "Whether registrations are compressed. Apache's name servers of 5.x read them (though not"
        " those that Apache's 5.3 to 5.5 brokers send); name servers that cannot, as of 4.9, get"
        " them uncompressed.",
        dynamic=True,
    )
    enable_single_topic_register: bool = key(
        False,
        "Whether a changed topic is registered by a request of its own, which only name servers of"
        " 5.x support.",
        dynamic=True,
        releases=APACHE_5,
    )
    enable_split_registration: bool = key(
        False,
        "Whether registrations are split into requests of `splitRegistrationSize` topics.",
        dynamic=True,
        releases=APACHE_5,
    )
    split_registration_size: int = key(
        800, "See `enableSplitRegistration`.", minimum=2, dynamic=True, releases=APACHE_5
    )
    broker_permission: int = key(
        6,
        "Permissions of this broker: 4 = read, 2 = write, 6 = both. The routes of its topics have"
        " no other.",
        minimum=0,
        maximum=7,
        dynamic=True,
    )

    @property
    def register_period_ms(self) -> int:
        """Return the interval of registrations, within the bounds."""
        return min(max(self.register_name_server_period, PERIOD_MS_MIN), PERIOD_MS_MAX)


@dataclass(frozen=True, kw_only=True)
class AddressServerSettings(Settings):
    """JVM properties with which Apache finds name servers and names its zone."""

    SECTION: ClassVar[str] = "orbitmq"

    address_server: str = key(
        "jmenv.tbsite.net",
        "Host, or host:port, of the address server that `fetchNamesrvAddrByAddressServer` uses.",
        name="rocketmq.namesrv.domain",
        releases=OWN,
    )
    address_server_group: str = key(
        "nsaddr",
        "The group requested there.",
        name="rocketmq.namesrv.domain.subgroup",
        releases=OWN,
    )
    rmq_address_server_domain: str = key(
        "",
        "Overrides `rocketmq.namesrv.domain`; Apache's name for it in files.",
    )
    rmq_address_server_sub_group: str = key("", "Overrides `rocketmq.namesrv.domain.subgroup`.")
    zone: str | None = key(
        None,
        "The zone that the broker registers in, for clients that prefer their own zone.",
        name="rocketmq.zone",
        releases=OWN,
        original_env="ROCKETMQ_ZONE",
    )


@dataclass(frozen=True, kw_only=True)
class LinkKeys(LinkSettings, AddressServerSettings):
    """All keys of the link."""
