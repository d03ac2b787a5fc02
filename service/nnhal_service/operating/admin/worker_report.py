"""Report of a worker: its part of the snapshot of the service."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from nnhal.admin.v1 import admin_pb2
from nnhal.types import DeviceType, Priority, operation_name, type_name
from nnhal_driver.backends.report import Report
from nnhal_driver.compilation.operation_support import list_support
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.memory_limits import resident_bytes
from nnhal_service.operating.admin.recent_warnings import RecentWarning
from nnhal_service.operating.admin.snapshots import CACHE_COUNTS
from nnhal_service.recording.recorder import Recorder
from nnhal_service.server import Server
from nnhal_service.sessions.session import Session, SessionObject

_TASKS = Path("/proc/self/task")
_MAX_REASONS = 5
"""Number of reasons that a partition has at most."""


class WorkerReporter:
    """Source of the reports of one worker.

    Attributes:
        slot: number of the worker.
    """

    def __init__(self, slot: int, generation: int, server: Server) -> None:
        self.slot = slot
        self._generation = generation
        self._server = server

    def report(self, state: str, warnings: Sequence[RecentWarning]) -> admin_pb2.WorkerReport:
        """Return a report of now."""
        server = self._server
        sessions = server.sessions.all()
        counters = server.store.counters()
        return admin_pb2.WorkerReport(
            worker=admin_pb2.WorkerSnapshot(
                state=state,
                sessions=len(sessions),
                memory_bytes=resident_bytes(),
                client_bytes=server.quota.total,
                threads=len(os.listdir(_TASKS)),
            ),
            devices=map(self._device, server.devices),
            sessions=map(self._session, sessions),
            models=(self._model(session, each) for session in sessions for each in session.objects_of(PreparedModel)),
            cache=admin_pb2.CacheSnapshot(**{name: getattr(counters, name) for name in CACHE_COUNTS}),
            warnings=(admin_pb2.WarningSnapshot(**each) for each in warnings),
            recording=_recording(server.recorder),
            shadow=admin_pb2.ShadowSnapshot(target=server.settings.shadow or "", **asdict(server.recorder.repetition)),
        )

    def abilities(self) -> admin_pb2.WorkerAbilities:
        """Return what the devices can do. Measures devices that have not been measured before."""
        return admin_pb2.WorkerAbilities(abilities=map(_ability, self._server.devices))

    def find_session(self, id_: str) -> Session | None:
        """Return the session with an id of operators, or None."""
        return next((session for session in self._server.sessions.all() if self._id(session) == id_), None)

    def _id(self, session: Session) -> str:
        return f"{self.slot}.{self._generation}.{session.name}"

    def _device(self, device: Device) -> admin_pb2.DeviceSnapshot:
        return admin_pb2.DeviceSnapshot(
            name=device.name,
            type=DeviceType(device.get_type()).name,
            version=device.get_version_string(),
            extensions=[extension.name for extension in device.get_supported_extensions()],
            backends=map(self._backend, self._server.reports[device.name]),
        )

    def _backend(self, report: Report) -> admin_pb2.BackendSnapshot:
        return admin_pb2.BackendSnapshot(
            id=report.id,
            state=report.state.value,
            reason=report.reason,
            origin=report.origin,
            version=report.version,
            api_version=report.api_version,
            capabilities=[name for name, present in report.capabilities.items() if present],
            quarantined_models=self._server.quarantine.count(report.id),
            hardware=report.hardware,
        )

    def _session(self, session: Session) -> admin_pb2.SessionSnapshot:
        return admin_pb2.SessionSnapshot(
            id=self._id(session),
            worker=self.slot,
            name=session.name,
            identity=str(session.identity),
            client=session.client,
            peer=session.peer,
            opened_at=session.opened_at,
            connected=session.attachments > 0,
            calls=session.number_of("session_calls"),
            memory_bytes=self._server.quota.used_by(session),
            models=session.number_of("prepared_models"),
            objects=session.object_count,
            placement=session.placement,
        )

    def _model(self, session: Session, entry: SessionObject[PreparedModel]) -> admin_pb2.ModelSnapshot:
        model = entry.value
        partitions = list(_partitions(model))
        return admin_pb2.ModelSnapshot(
            id=f"{self.slot}.{self._generation}.{entry.label}",
            session=self._id(session),
            worker=self.slot,
            identity=str(session.identity),
            name=entry.label,
            digest=model.digest.hex(),
            backends=dict.fromkeys(partition.backend for partition in partitions),
            priority=Priority(model.priority).name,
            cached=model.loaded_from is not None,
            prepared_at=entry.created_at,
            uses=model.latencies.count,
            memory_bytes=model.size,
            best_s=model.latencies.min_ns() / 1e9,
            longest_s=model.latencies.max_ns / 1e9,
            partitions=partitions,
            model_name=model.name or entry.name,
        )


def _recording(recorder: Recorder) -> admin_pb2.RecordingSnapshot:
    rules, archives = asdict(recorder.recording) if recorder.recording.share else {}, recorder.archives
    if archives is None:
        return admin_pb2.RecordingSnapshot()
    folder = str(archives.folder.root)
    return admin_pb2.RecordingSnapshot(
        folder=folder, records=archives.written, bytes=archives.size, lost=archives.lost, **rules
    )


def _ability(device: Device) -> admin_pb2.AbilitySnapshot:
    operations = (
        admin_pb2.OperationSnapshot(
            operation=each.operation,
            type=each.type,
            answers={backend: state.value for backend, (state, _) in each.answers.items()},
            reasons={backend: reason for backend, (_, reason) in each.answers.items() if reason},
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
    performance = (
        admin_pb2.PerformanceSnapshot(type=name, exec_time=info.exec_time, power_usage=info.power_usage)
        for name, info in named.items()
    )
    return admin_pb2.AbilitySnapshot(device=device.name, operations=operations, performance=performance)


def _partitions(model: PreparedModel) -> Iterator[admin_pb2.PartitionSnapshot]:
    placed = {(each.subgraph, each.operation): each for each in model.placement.operations}
    for partition in model.placement.partitions:
        operations = [placed[key] for number in partition.operations if (key := (partition.subgraph, number)) in placed]
        refusals = (refusal for operation in operations for refusal in operation.refusals)
        reasons = list(dict.fromkeys(f"{each.backend}: {each.reason}" for each in refusals))
        yield admin_pb2.PartitionSnapshot(
            subgraph=partition.subgraph,
            backend=partition.backend,
            operations=[operation_name(each.type) for each in operations],
            reasons=reasons[:_MAX_REASONS],
        )
