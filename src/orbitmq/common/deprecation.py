"""Old import paths and names: they keep working for one release and name their replacement."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module


def moved(old: str, new: str) -> Callable[[str], object]:
    """Return a module-level `__getattr__` for module `old` that finds names in module `new`, with a
    DeprecationWarning.
    """

    def find(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        try:
            value: object = getattr(import_module(new), name)
        except AttributeError:
            raise AttributeError(f"module {old!r} has no attribute {name!r}") from None
        warnings.warn(
            f"{old}.{name} has moved: import it from {new}", DeprecationWarning, stacklevel=2
        )
        return value

    return find


def renamed(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Return a module-level `__getattr__` that finds the old names of a module under their new
    ones, with a DeprecationWarning.
    """

    def find(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(
            f"{module}.{name} was renamed: use {names[name]}", DeprecationWarning, stacklevel=2
        )
        return getattr(import_module(module), names[name])

    return find
