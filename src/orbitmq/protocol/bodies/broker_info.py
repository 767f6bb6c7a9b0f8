"""Bodies about the state of replication and of the check of a second store, as RocketMQ 5.5.0
writes them.
"""

from __future__ import annotations

from typing import Final

from orbitmq.protocol import fastjson

ROCKSDB_CHECK_RUNS: Final = b'{"checkStatus":2}'


def encode_ha_status(log_end: int) -> bytes:
    """Encode the response to GET_BROKER_HA_STATUS of a master without slaves."""
    return fastjson.dumps(
        {
            "haClientRuntimeInfo": {
                "lastReadTimestamp": 0,
                "lastWriteTimestamp": 0,
                "masterFlushOffset": 0,
                "maxOffset": 0,
                "transferredByteInSecond": 0,
            },
            "haConnectionInfo": [],
            "inSyncSlaveNums": 0,
            "master": True,
            "masterCommitLogMaxOffset": log_end,
        }
    )
