"""Files of a process that tests end without closing anything: its descriptors end with it, as the
operating system has it.
"""

from __future__ import annotations

from pathlib import Path

from orbitmq.store.file_layer import OsFileLayer


class ProcessFiles(OsFileLayer):
    """Knows which descriptors are open, and closes them when it is forgotten."""

    def __init__(self) -> None:
        self._descriptors: set[int] = set()

    def open(self, path: Path, *, create: bool = False) -> int:
        descriptor = super().open(path, create=create)
        self._descriptors.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._descriptors.discard(descriptor)
        super().close(descriptor)

    def end(self) -> None:
        """Close whatever is open."""
        for descriptor in list(self._descriptors):
            self.close(descriptor)

    def __del__(self) -> None:
        self.end()
