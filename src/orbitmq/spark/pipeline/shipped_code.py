"""Ships OrbitMQ's code to the machines of a cluster, which have Spark and a Python with Arrow only.

The package is sent with its compiled kernels, as an archive that Spark unpacks into the import path
of its workers: compiled code can only be imported from a file. A Python that the kernels were not
compiled for runs their sources; these need the module `cython`, a few files of which are sent
along. Workers next to the driver that serve a stream do not use that path; they import the code in
place.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Final

import cython
import Cython.Shadow

import orbitmq

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE: Final = "orbitmq"
_CYTHON: Final = Path(cython.__file__)
_CODE: Final = (".py", *EXTENSION_SUFFIXES)


def ship_code(spark: SparkSession, folder: Path) -> None:
    """Send the code and register the formats from it: formats that Spark discovers itself must be
    installed on every machine.
    """
    from orbitmq.spark.commitlog.source import CommitLogSource
    from orbitmq.spark.source.data_source import RocketmqSource

    spark.sparkContext.addArchive(f"{package_archive(folder)}#{_PACKAGE}")
    spark.sparkContext.addPyFile(str(cython_archive(folder)))
    spark.dataSource.register(RocketmqSource)
    spark.dataSource.register(CommitLogSource)


def expose_code_locally(folder: Path) -> None:
    """Let Python workers on this machine import the code, but no other package of this Python. Must
    be called before Spark starts.
    """
    for module in (Path(orbitmq.__file__).parent, _CYTHON, Path(Cython.__file__).parent):
        (folder / module.name).symlink_to(module)
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(folder), os.environ.get("PYTHONPATH")))
    )


def package_archive(folder: Path) -> Path:
    """Archive the modules of the package, to be unpacked into a folder of its name."""
    root = Path(orbitmq.__file__).parent
    return _archive(
        folder / f"{_PACKAGE}.zip",
        root,
        (file for file in sorted(root.rglob("*")) if file.name.endswith(_CODE)),
    )


def cython_archive(folder: Path) -> Path:
    """Archive the part of Cython that interpreted kernels import."""
    return _archive(
        folder / "cython.zip",
        _CYTHON.parent,
        (_CYTHON, Path(Cython.__file__), Path(Cython.Shadow.__file__)),
    )


def _archive(target: Path, root: Path, files: Iterable[Path]) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.relative_to(root))
    return target
