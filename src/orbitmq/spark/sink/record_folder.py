"""A folder of small write-once files, on a local disk or any file system that Arrow supports.

Invariant: a file exists completely or not at all; on local disks even after a power failure.
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
    """A folder of write-once files."""

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def create(self, name: str, data: bytes) -> None:
        """Create a file; raises FileExistsError if it exists."""
        ...

    def delete(self, name: str) -> None: ...


class LocalFolder:
    """A folder in a local file system, which may be shared with other machines."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    def names(self) -> list[str]:
        with _explain_errors(self):
            return [entry.name for entry in self._path.iterdir()] if self._path.is_dir() else []

    def read(self, name: str) -> bytes:
        with _explain_errors(self):
            return (self._path / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        with _explain_errors(self):
            atomic_file.create(self._path / name, data)

    def delete(self, name: str) -> None:
        with _explain_errors(self):
            (self._path / name).unlink(missing_ok=True)


class RemoteFolder:
    """A folder in an object store or HDFS. If two processes create the same file at the same
    moment, both may succeed and the last one wins.
    """

    def __init__(self, files: fs.FileSystem, path: str, uri: str) -> None:
        self._files, self._path, self._uri = files, path, uri

    def __str__(self) -> str:
        return self._uri

    def names(self) -> list[str]:
        with _explain_errors(self):
            return [
                info.base_name
                for info in self._files.get_file_info(
                    fs.FileSelector(self._path, allow_not_found=True)
                )
            ]

    def read(self, name: str) -> bytes:
        with _explain_errors(self), self._files.open_input_stream(f"{self._path}/{name}") as stream:
            return bytes(stream.read())

    def create(self, name: str, data: bytes) -> None:
        with _explain_errors(self):
            if name in self.names():
                raise FileExistsError(name)
            temporary = f"{self._path}/.{name}.{os.getpid()}"
            self._files.create_dir(self._path)
            with self._files.open_output_stream(temporary) as stream:
                stream.write(data)
            self._files.move(temporary, f"{self._path}/{name}")

    def delete(self, name: str) -> None:
        with _explain_errors(self), suppress(FileNotFoundError):
            self._files.delete_file(f"{self._path}/{name}")


def open_folder(place: str) -> RecordFolder:
    """Return the folder at an absolute path or URI."""
    parts = urlsplit(place)
    if not parts.scheme:
        return LocalFolder(Path(place))
    uri = parts._replace(scheme=_SCHEMES.get(parts.scheme, parts.scheme)).geturl()
    try:
        files, path = fs.FileSystem.from_uri(uri)
    # NotImplementedError: this Arrow was built without that file system.
    except (OSError, ValueError, NotImplementedError) as problem:
        raise ConfigurationError(
            f"the transaction log cannot be at {place}: {problem}; set the option transactionLog to"
            " a path visible to driver and executors, or to a URI of s3, gs, abfs or hdfs"
        ) from problem
    return RemoteFolder(files, path, place)


@contextmanager
def _explain_errors(folder: object) -> Iterator[None]:
    """Reword file errors to say that the transaction log is affected."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as problem:
        raise OrbitError(
            f"the transaction log {folder} is not usable: {problem}; without it nothing is"
            " committed"
        ) from problem
