"""A folder of small files that are written once and never changed: on a disk of this machine, or wherever Arrow can reach.

Invariant: a file is there as a whole or not at all; on local disks also after a power cut.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

from pyarrow import fs

from orbitmq.common import atomic_file
from orbitmq.common.errors import ConfigurationError, OrbitError

_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}  # Hadoop's names, and Arrow's


class RecordFolder(Protocol):
    """See above."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def create(self, name: str, data: bytes) -> None:
        """FileExistsError when there is such a file."""
        ...

    def delete(self, name: str) -> None: ...


class LocalFolder:
    """Of a file system of this machine, which it may share with others."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def names(self) -> list[str]:
        with _told(self):
            return [entry.name for entry in self._path.iterdir()] if self._path.is_dir() else []

    def read(self, name: str) -> bytes:
        with _told(self):
            return (self._path / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        with _told(self):
            atomic_file.create(self._path / name, data)

    def delete(self, name: str) -> None:
        with _told(self):
            (self._path / name).unlink(missing_ok=True)


class DistantFolder:
    """Of an object store or HDFS. Two that create the same file at the same moment may both succeed; the last one counts."""

    def __init__(self, files: fs.FileSystem, path: str, uri: str) -> None:
        self._files, self._path, self._uri = files, path, uri

    def __str__(self) -> str:
        return self._uri

    def names(self) -> list[str]:
        with _told(self):
            return [info.base_name for info in self._files.get_file_info(fs.FileSelector(self._path, allow_not_found=True))]

    def read(self, name: str) -> bytes:
        with _told(self), self._files.open_input_stream(f"{self._path}/{name}") as stream:
            return bytes(stream.read())

    def create(self, name: str, data: bytes) -> None:
        with _told(self):
            if name in self.names():
                raise FileExistsError(name)
            temporary = f"{self._path}/.{name}.{os.getpid()}"
            self._files.create_dir(self._path)
            with self._files.open_output_stream(temporary) as stream:
                stream.write(data)
            self._files.move(temporary, f"{self._path}/{name}")

    def delete(self, name: str) -> None:
        with _told(self), suppress(FileNotFoundError):
            self._files.delete_file(f"{self._path}/{name}")


def folder_at(place: str) -> RecordFolder:
    """The folder at an absolute path or URI."""
    parts = urlsplit(place)
    if not parts.scheme:
        return LocalFolder(Path(place))
    uri = parts._replace(scheme=_SCHEMES.get(parts.scheme, parts.scheme)).geturl()
    try:
        files, path = fs.FileSystem.from_uri(uri)
    except (OSError, ValueError, NotImplementedError) as problem:  # Arrow raises the last where it was built without that file system
        raise ConfigurationError(
            f"the transaction log cannot be at {place}: {problem}; "
            "give the option transactionLog a path that driver and executors see, or an URI of s3, gs, abfs or hdfs"
        ) from problem
    return DistantFolder(files, path, place)


@contextmanager
def _told(folder: object) -> Iterator[None]:
    """Let errors of files say what the folder is for."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as problem:
        raise OrbitError(f"the transaction log {folder} cannot be used: {problem}; nothing is committed without it") from problem
