"""The hot modules, compiled when a C compiler was there, and the switch that turns the compiled
ones off.

A kernel is one Python source in Cython's pure-Python mode. Built, its extension module lies beside
the source and Python prefers it; `ORBITMQ_PURE=1` makes Python load the source instead. `setup.py`
reads the same list.
"""

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

KERNELS = (
    "orbitmq.broker.fast_path.authorization",
    "orbitmq.broker.fast_path.replies",
    "orbitmq.broker.fast_path.counters",
    "orbitmq.broker.fast_path.end_transaction",
    "orbitmq.broker.fast_path.path",
    "orbitmq.broker.fast_path.properties",
    "orbitmq.broker.fast_path.pull",
    "orbitmq.broker.fast_path.send",
    "orbitmq.common.crc",
    "orbitmq.message.record_read",
    "orbitmq.message.record_write",
    "orbitmq.message.sql.record_tests",
    "orbitmq.message.tags",
    "orbitmq.protocol.command",
    "orbitmq.protocol.frame",
    "orbitmq.protocol.header_binary",
    "orbitmq.protocol.header_scan",
    "orbitmq.protocol.header_view",
    "orbitmq.protocol.header_write",
    "orbitmq.remoting.budgets",
    "orbitmq.remoting.socket_loop",
    "orbitmq.spark.kernels.arrow_texts",
    "orbitmq.spark.kernels.columns",
    "orbitmq.spark.kernels.log_rows",
    "orbitmq.spark.kernels.outgoing_rows",
    "orbitmq.spark.kernels.property_column",
    "orbitmq.spark.kernels.record_table",
    "orbitmq.spark.kernels.row_properties",
    "orbitmq.spark.kernels.rows",
    "orbitmq.store.dispatch_batch",
    "orbitmq.store.entry_scan",
    "orbitmq.store.index_writer",
    "orbitmq.store.log_batch",
    "orbitmq.store.record_collector",
    "orbitmq.store.queue_offsets",
    "orbitmq.store.record_scanner",
)


def mode() -> str:
    """`compiled` when every kernel is, `interpreted` when none is, otherwise the names of the
    compiled ones.
    """
    compiled = [name for name in KERNELS if is_compiled(name)]
    if len(compiled) == len(KERNELS):
        return "compiled"
    return f"partly compiled: {', '.join(compiled)}" if compiled else "interpreted"


def is_compiled(name: str) -> bool:
    """Whether importing kernel `name` loads, or has loaded, an extension module."""
    spec = importlib.util.find_spec(name)
    return spec is not None and isinstance(spec.loader, importlib.machinery.ExtensionFileLoader)


def install_switch() -> None:
    """With `ORBITMQ_PURE` set to anything but empty or 0, load kernels from source from now on."""
    if os.environ.get("ORBITMQ_PURE", "0") not in ("", "0") and not any(
        isinstance(finder, _SourceFinder) for finder in sys.meta_path
    ):
        sys.meta_path.insert(0, _SourceFinder())


class _SourceFinder:
    """A meta path finder that finds the `.py` of a kernel even when a compiled one lies
    beside it.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in KERNELS or path is None:
            return None
        source = Path(path[0]) / (fullname.rpartition(".")[2] + ".py")
        return (
            importlib.util.spec_from_file_location(fullname, source) if source.exists() else None
        )  # an archive has nothing compiled
