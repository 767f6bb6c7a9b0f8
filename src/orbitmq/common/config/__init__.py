"""Configuration: declared keys, typed settings, and the layers their values come from."""

from orbitmq.common.config.keys import APACHE_5, APACHE_49, OWN, Key, Long, Use, key
from orbitmq.common.config.layers import Loaded, load
from orbitmq.common.config.settings import Settings
from orbitmq.common.config.tls import ClientAuth, TlsMode, TlsSettings

__all__ = [
    "APACHE_5",
    "APACHE_49",
    "OWN",
    "ClientAuth",
    "Key",
    "Loaded",
    "Long",
    "Settings",
    "TlsMode",
    "TlsSettings",
    "Use",
    "key",
    "load",
]
