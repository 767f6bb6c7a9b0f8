"""Headers of master election and of what masters and slaves tell each other."""

from dataclasses import dataclass

from orbitmq.protocol.headers.base import Header, Int32, Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeHAInfoRequestHeader(Header):
    """906: a slave and its master exchange addresses and positions."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeHAInfoResponseHeader(Header):
    """Answer to 906."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetMasterFlushOffsetHeader(Header):
    """908: how far the master has flushed."""

    master_flush_offset: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyBrokerRoleChangedRequestHeader(Header):
    """1008, controller to broker: the group has another master."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSyncStateSetRequestHeader(Header):
    """1001: the master changes the set of replicas that are in sync."""

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterSyncStateSetResponseHeader(Header):
    """Answer to 1001."""

    new_sync_state_set_epoch: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectMasterRequestHeader(Header):
    """1002: elect a master."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    designate_elect: bool
    invoke_time: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectMasterResponseHeader(Header):
    """Answer to 1002."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerToControllerRequestHeader(Header):
    """1003: a broker that has its id says where it is."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerToControllerResponseHeader(Header):
    """Answer to 1003."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetReplicaInfoRequestHeader(Header):
    """1004: who is master of a group."""

    broker_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetReplicaInfoResponseHeader(Header):
    """Answer to 1004."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetMetaDataResponseHeader(Header):
    """Answer to 1005: who leads the controllers."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool | None = None
    peers: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanControllerBrokerDataRequestHeader(Header):
    """1011: forget brokers of a group."""

    broker_name: str
    cluster_name: str | None = None
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool | None = None
    invoke_time: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetNextBrokerIdRequestHeader(Header):
    """1012: the id that the next broker of a group gets."""

    cluster_name: str | None = None
    broker_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GetNextBrokerIdResponseHeader(Header):
    """Answer to 1012."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyBrokerIdRequestHeader(Header):
    """1013: take an id; the check code tells two that want the same one apart."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyBrokerIdResponseHeader(Header):
    """Answer to 1013."""

    cluster_name: str | None = None
    broker_name: str | None = None
