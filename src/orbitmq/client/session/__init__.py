"""What the producers and consumers of one client share: connections, routes, heartbeats."""

from orbitmq.common.deprecation import moved

__getattr__ = moved(__name__, "orbitmq.client.session.client_session")
