"""Report of a worker: its part of the snapshot of the service."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from nnhal.types import DeviceType, Priority, operation_name, type_name
from nnhal_cache.store import Store
from nnhal_driver.backends.report import Report
from nnhal_driver.compilation.operation_support import list_support
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.quarantine import Quarantine
from nnhal_service.admin.view import (
    AbilitySnapshot,
    BackendSnapshot,
    DeviceSnapshot,
    ModelSnapshot,
    OperationSnapshot,
    PartitionSnapshot,
    PerformanceSnapshot,
    SessionSnapshot,
    WarningSnapshot,
)
from nnhal_service.memory_limits import resident_bytes
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session, SessionObject
from nnhal_service.sessions.session_registry import SessionRegistry

CACHE_COUNTS = ("hits", "misses", "saves", "evictions", "set_aside")
"""Counts of the cache in a report."""
_TASKS = Path("/proc/self/task")
_MAX_REASONS = 5
"""Number of reasons that a partition has at most."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """Report of a worker.

    Attributes:
        state: "serving", "draining" or "drained".
        memory_bytes: resident memory of the process.
        client_bytes: memory that its clients use.
        threads: number of its threads.
        log_level: lowest severity that it logs.
        devices: the devices.
        sessions: its sessions.
        models: the prepared models of its sessions.
        cache_counts: the CACHE_COUNTS of this process.
        warnings: the last warnings and errors.
    """

    state: str
    memory_bytes: int
    client_bytes: int
    threads: int
    log_level: str
    devices: tuple[DeviceSnapshot, ...]
    sessions: tuple[SessionSnapshot, ...]
    models: tuple[ModelSnapshot, ...]
    cache_counts: Mapping[str, int]
    warnings: tuple[WarningSnapshot, ...]

    def to_json(self) -> bytes:
        """Return the report as JSON."""
        return _adapter().dump_json(self)

    @staticmethod
    def from_json(data: bytes) -> "WorkerReport":
        """Return the report in JSON.

        Raises:
            ValueError: it is not one.
        """
        return _adapter().validate_json(data)


@cache
def _adapter() -> TypeAdapter[WorkerReport]:
    return TypeAdapter(WorkerReport)


@cache
def _abilities_adapter() -> TypeAdapter[tuple[AbilitySnapshot, ...]]:
    return TypeAdapter(tuple[AbilitySnapshot, ...])


def read_abilities(data: bytes) -> tuple[AbilitySnapshot, ...]:
    """Return the abilities in the answer of a worker.

    Raises:
        ValueError: the answer is invalid.
    """
    return _abilities_adapter().validate_json(data)


class WorkerReporter:
    """Source of the reports of one worker.

    Args:
        slot: its number.
        generation: number of its start.
        devices: its devices.
        reports: the candidates for backends, by name of the device.
        sessions: its sessions.
        quota: the memory of its clients.
        store: the cache.
        quarantine: the models in quarantine.

    Attributes:
        slot: number of the worker.
    """

    def __init__(
        self,
        slot: int,
        generation: int,
        devices: Sequence[Device],
        reports: Mapping[str, Sequence[Report]],
        sessions: SessionRegistry,
        quota: MemoryQuota,
        store: Store,
        quarantine: Quarantine,
    ) -> None:
        self.slot = slot
        self._generation = generation
        self._devices = devices
        self._reports = reports
        self._sessions = sessions
        self._quota = quota
        self._store = store
        self._quarantine = quarantine

    def report(self, state: str, log_level: str, warnings: tuple[WarningSnapshot, ...]) -> WorkerReport:
        """Return a report of now.

        Args:
            state: state of the worker.
            log_level: lowest severity that it logs.
            warnings: the last warnings.
        """
        sessions = self._sessions.all()
        counters = self._store.counters()
        return WorkerReport(
            state,
            resident_bytes(),
            self._quota.total,
            len(os.listdir(_TASKS)),
            log_level,
            tuple(map(self._device, self._devices)),
            tuple(map(self._session, sessions)),
            tuple(self._model(session, each) for session in sessions for each in session.objects_of(PreparedModel)),
            {name: getattr(counters, name) for name in CACHE_COUNTS},
            warnings,
        )

    def abilities(self) -> bytes:
        """Return what the devices can do, as JSON. Measures devices that have not been measured before."""
        return _abilities_adapter().dump_json(tuple(map(_ability, self._devices)))

    def find_session(self, id_: str) -> Session | None:
        """Return the session with an id of operators, or None."""
        return next((session for session in self._sessions.all() if self._id(session) == id_), None)

    def _id(self, session: Session) -> str:
        return f"{self.slot}.{self._generation}.{session.name}"

    def _device(self, device: Device) -> DeviceSnapshot:
        return DeviceSnapshot(
            device.name,
            DeviceType(device.get_type()).name,
            device.get_version_string(),
            tuple(extension.name for extension in device.get_supported_extensions()),
            tuple(map(self._backend, self._reports[device.name])),
        )

    def _backend(self, report: Report) -> BackendSnapshot:
        return BackendSnapshot(
            report.id,
            report.state.value,
            report.reason,
            report.origin,
            report.version,
            report.api_version,
            tuple(name for name, present in report.capabilities.items() if present),
            self._quarantine.count(report.id),
        )

    def _session(self, session: Session) -> SessionSnapshot:
        return SessionSnapshot(
            self._id(session),
            self.slot,
            session.name,
            str(session.identity),
            session.client,
            session.peer,
            session.opened_at,
            session.attachments > 0,
            session.number_of("session_calls"),
            self._quota.used_by(session),
            session.number_of("prepared_models"),
            session.object_count,
            session.placement,
        )

    def _model(self, session: Session, entry: SessionObject[PreparedModel]) -> ModelSnapshot:
        model = entry.value
        partitions = _partitions(model)
        return ModelSnapshot(
            f"{self.slot}.{self._generation}.{entry.label}",
            self._id(session),
            self.slot,
            str(session.identity),
            entry.label,
            model.digest.hex(),
            tuple(dict.fromkeys(partition.backend for partition in partitions)),
            Priority(model.priority).name,
            model.loaded_from is not None,
            entry.created_at,
            model.latencies.count,
            model.size,
            model.latencies.min_ns() / 1e9,
            model.latencies.max_ns / 1e9,
            partitions,
        )


def _ability(device: Device) -> AbilitySnapshot:
    operations = tuple(
        OperationSnapshot(
            each.operation,
            each.type,
            {backend: state.value for backend, (state, _) in each.answers.items()},
            {backend: reason for backend, (_, reason) in each.answers.items() if reason},
        )
        for each in list_support(device.backends)
    )
    figures = device.get_capabilities()
    named = {
        "RELAXED_FLOAT32 SCALAR": figures.relaxed_float32_to_float16_performance_scalar,
        "RELAXED_FLOAT32 TENSOR": figures.relaxed_float32_to_float16_performance_tensor,
        **{type_name(each.type): each.info for each in figures.operand_performance},
        "IF": figures.if_performance,
        "WHILE": figures.while_performance,
    }
    performance = (PerformanceSnapshot(name, info.exec_time, info.power_usage) for name, info in named.items())
    return AbilitySnapshot(device.name, operations, tuple(performance))


def _partitions(model: PreparedModel) -> tuple[PartitionSnapshot, ...]:
    placed = {(each.subgraph, each.operation): each for each in model.placement.operations}
    found = []
    for partition in model.placement.partitions:
        operations = [placed[key] for number in partition.operations if (key := (partition.subgraph, number)) in placed]
        reasons = dict.fromkeys(f"{each.backend}: {each.reason}" for one in operations for each in one.refusals)
        names = tuple(operation_name(each.type) for each in operations)
        found.append(PartitionSnapshot(partition.subgraph, partition.backend, names, tuple(reasons)[:_MAX_REASONS]))
    return tuple(found)
