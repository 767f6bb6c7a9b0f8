"""Deprecated: use `orbitmq.access.credentials`."""

from orbitmq.common.deprecation import moved

__getattr__ = moved(__name__, "orbitmq.access.credentials")
