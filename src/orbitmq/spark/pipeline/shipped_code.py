"""Our code on the machines of a cluster, which have Spark and a Python with Arrow, and nothing of ours.

The package goes along with its compiled kernels, as an archive that Spark unpacks beside whatever else it sends, where its Pythons look for
modules: an import of compiled code needs a file. A Python that the kernels were not compiled for runs their sources. Those need the module
`cython`, of which a few files go along. Pythons that Spark starts beside its driver do not look there when they serve a stream; they find
the code where it is.
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


def ship(spark: SparkSession, folder: Path) -> None:
    """Send our code, and make the formats known by way of it: those that Spark finds by itself it expects on every machine."""
    from orbitmq.spark.commitlog_source import CommitLogSource
    from orbitmq.spark.source import RocketmqSource

    spark.sparkContext.addArchive(f"{package_archive(folder)}#{_PACKAGE}")
    spark.sparkContext.addPyFile(str(cython_archive(folder)))
    spark.dataSource.register(RocketmqSource)
    spark.dataSource.register(CommitLogSource)


def show_here(folder: Path) -> None:
    """Let Pythons that Spark starts on this machine find our code, and nothing else that this one has. To be called before Spark starts."""
    for module in (Path(orbitmq.__file__).parent, _CYTHON, Path(Cython.__file__).parent):
        (folder / module.name).symlink_to(module)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


def package_archive(folder: Path) -> Path:
    """The modules of the package, to be unpacked into a folder of its name."""
    root = Path(orbitmq.__file__).parent
    return _archive(folder / f"{_PACKAGE}.zip", root, (file for file in sorted(root.rglob("*")) if file.name.endswith(_CODE)))


def cython_archive(folder: Path) -> Path:
    """What annotations of kernels mean to Python itself."""
    return _archive(folder / "cython.zip", _CYTHON.parent, (_CYTHON, Path(Cython.__file__), Path(Cython.Shadow.__file__)))


def _archive(target: Path, root: Path, files: Iterable[Path]) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, file.relative_to(root))
    return target
