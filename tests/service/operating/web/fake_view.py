"""View of an invented service: many of everything, texts with markup, and load that changes with time."""

import math
import time
from collections.abc import Mapping, Sequence

from nnhal.admin.v1.admin_pb2 import (
    AbilitySnapshot,
    BackendSnapshot,
    CacheEntrySnapshot,
    CacheSnapshot,
    DeviceSnapshot,
    LoadSnapshot,
    MemberSnapshot,
    ModelSnapshot,
    OperationSnapshot,
    PartitionSnapshot,
    PerformanceSnapshot,
    QuarantineSnapshot,
    ServiceSnapshot,
    SessionSnapshot,
    SettingSnapshot,
    WarningSnapshot,
    WorkerSnapshot,
)
from nnhal_service.metrics.pending_counts import PendingCounts
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.admin.service_view import ServiceView

MARKUP = "<img src=x onerror=alert(1)>"
"""Name that a hostile client gives itself."""
BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
_DAY_S = 86400.0
_NAMES = ("", "detector/3", f"{'segmenter-' * 20}v/14", "\u05d2\u05dc\u05d0\u05d9/2", MARKUP + "/1")
_OPERATIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "CONV_2D", "RELU", "AVERAGE_POOL_2D", "RESHAPE", "SOFTMAX")


class FakeView(ServiceView):
    """The view. Each snapshot has the next moment of an invented day, a second after the one before.

    Args:
        now: time of the first snapshot, in seconds since 1970.
        is_empty: the service has just started: nothing uses it.

    Attributes:
        actions: the actions so far, each with its arguments.
        failure: raised by all methods, if it is set.
    """

    def __init__(self, now: float = 0.0, is_empty: bool = False) -> None:
        self.actions: list[tuple[object, ...]] = []
        self.failure: Exception | None = None
        self.count = PendingCounts().count
        self._start = now or time.time()
        self._now = now
        self._is_empty = is_empty
        self._load = LoadSnapshot(bounds_s=BOUNDS_S, durations=(0,) * 10, waits=(0,) * 10)

    def snapshot(self) -> ServiceSnapshot:
        self._fail()
        self._now = self._now + 1 if self._now else time.time()
        if not self._is_empty:
            self._load = _more(self._load, self._now)
        return _snapshot(self._now, self._load, self._is_empty)

    def abilities(self) -> Sequence[AbilitySnapshot]:
        self._fail()
        reason = "LSH_PROJECTION has no counterpart in the engine"
        operations = (
            OperationSnapshot(
                operation="ADD", type="TENSOR_FLOAT32", answers={"CpuAcc": "depends", "CpuRef": "yes"}, reasons={}
            ),
            OperationSnapshot(
                operation="ADD", type="TENSOR_INT32", answers={"CpuAcc": "depends", "CpuRef": "yes"}, reasons={}
            ),
            OperationSnapshot(
                operation="RELU", type="TENSOR_FLOAT32", answers={"CpuAcc": "yes", "CpuRef": "yes"}, reasons={}
            ),
            OperationSnapshot(
                operation="RELU",
                type="TENSOR_QUANT8_ASYMM_SIGNED",
                answers={"CpuAcc": "yes", "CpuRef": "yes"},
                reasons={},
            ),
            OperationSnapshot(
                operation="LSH_PROJECTION",
                type="TENSOR_FLOAT32",
                answers={"CpuAcc": "no", "CpuRef": "yes"},
                reasons={"CpuAcc": reason},
            ),
            OperationSnapshot(operation="WHILE", type="TENSOR_BOOL8", answers={}, reasons={}),
        )
        performance = (
            PerformanceSnapshot(type="TENSOR_FLOAT32", exec_time=0.31, power_usage=0.3),
            PerformanceSnapshot(type="INT32", exec_time=1.0, power_usage=1.0),
        )
        return (
            AbilitySnapshot(device="nnhal", operations=operations, performance=performance),
            AbilitySnapshot(device="exact", operations=operations[-1:], performance=performance[:1]),
        )

    def settings(self) -> Sequence[SettingSnapshot]:
        self._fail()
        return (
            SettingSnapshot(name="listen", value='["127.0.0.1:50051"]', origin="default"),
            SettingSnapshot(name="workers", value="2", origin="--workers"),
            SettingSnapshot(name="log_level", value='"DEBUG"', origin="NNHAL_LOG_LEVEL"),
        )

    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        self._fail()
        return b"# EOF\n", "application/openmetrics-text; version=1.0.0; charset=utf-8"

    def stacks(self, by: str, worker: int | None = None) -> Mapping[str, str]:
        return {"worker 0": "main:\n  wait\n"}

    def drain(self, by: str, worker: int | None = None) -> str:
        return self._act("drain", by, worker)

    def resume(self, by: str, worker: int | None = None) -> str:
        return self._act("resume", by, worker)

    def reload(self, by: str) -> tuple[str, Sequence[str]]:
        return self._act("reload", by), ()

    def end_session(self, by: str, session: str) -> str:
        if session == "unknown":
            raise AdminError("there is no session 'unknown'")
        return self._act("end_session", by, session)

    def clear_quarantine(self, by: str, digests: Sequence[str] = ()) -> str:
        return self._act("clear_quarantine", by, tuple(digests))

    def clear_cache(self, by: str, identity: str | None = None, tokens: Sequence[str] = ()) -> str:
        return self._act("clear_cache", by, identity, tuple(tokens))

    def set_log_level(self, by: str, level: str) -> str:
        return self._act("set_log_level", by, level)

    def _act(self, *action: object) -> str:
        self._fail()
        self.actions.append(action)
        return f"done: {action[0]}"

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def _more(load: LoadSnapshot, now: float) -> LoadSnapshot:
    """Return the load a moment later: waves of different lengths."""
    wave = 1 + math.sin(now / 20) / 2 + math.sin(now / 3) / 8
    executions = int(240 * wave)
    shares = (0.02, 0.1, 0.3, 0.35, 0.15, 0.05, 0.02, 0.008, 0.002, 0)
    durations = [int(executions * share * (wave if index > 4 else 1)) for index, share in enumerate(shares)]
    waits = [int(executions * share) for share in (0.8, 0.1, 0.05, 0.03, 0.01, 0.01 * wave, 0, 0, 0, 0)]
    return LoadSnapshot(
        bounds_s=load.bounds_s,
        running=round(3 * wave),
        queued=max(round(12 * (wave - 1)), 0),
        preparing=int(wave),
        executions=load.executions + sum(durations),
        rejected=load.rejected + int(max(0, wave - 1.3) * 10),
        durations=map(sum, zip(load.durations, durations, strict=True)),
        waits=map(sum, zip(load.waits, waits, strict=True)),
    )


def _snapshot(now: float, load: LoadSnapshot, is_empty: bool) -> ServiceSnapshot:
    return ServiceSnapshot(
        at=now,
        version="0.9.0",
        state="serving",
        pid=4242,
        started_at=now - 2.5 * _DAY_S,
        addresses=("127.0.0.1:50051", "unix:/run/nnhal/nnhal.sock"),
        log_level="INFO",
        load=load,
        devices=_devices(),
        workers=_workers(now, load),
        sessions=() if is_empty else tuple(_session(now, number) for number in range(24)),
        models=() if is_empty else tuple(_model(now, number) for number in range(37)),
        cache=CacheSnapshot(directory="/home/user/.cache/nnhal", max_bytes=2 << 30) if is_empty else _cache(now),
        quarantine=() if is_empty else _quarantine(now),
        warnings=() if is_empty else _warnings(now),
        member="" if is_empty else "nnhal-0-5bd3f0",
        members=() if is_empty else _members(load),
    )


def _members(load: LoadSnapshot) -> tuple[MemberSnapshot, ...]:
    return (
        MemberSnapshot(
            id="nnhal-0-5bd3f0",
            host="nnhal-0",
            address="10.0.0.1:50051",
            version="0.9.0",
            generation=1,
            draining=False,
            cpus=8,
            free_bytes=9 << 30,
            sessions=24,
            executions=load.running,
            backends=("CpuAcc",),
        ),
        MemberSnapshot(
            id="nnhal-1-77aa12",
            host="nnhal-1",
            address="10.0.0.2:50051",
            version="0.9.0",
            generation=1,
            draining=True,
            cpus=8,
            free_bytes=5 << 30,
            sessions=3,
            executions=1,
            backends=("CpuRef",),
            accelerators=("Npu",),
            models=7,
        ),
    )


def _devices() -> tuple[DeviceSnapshot, ...]:
    backends = (
        BackendSnapshot(
            id="Npu",
            state="failed",
            reason="cannot load libnpu.so: no such file; install the driver",
            origin="/opt/nnhal/backends/Npu",
            version="2.1",
        ),
        BackendSnapshot(
            id="CpuAcc",
            state="ready",
            reason="",
            origin="built in",
            version="2.3.0",
            api_version="1.2",
            capabilities=("cached models", "device memory", "dynamic shapes", "profiling"),
            quarantined_models=1,
            hardware={"adapter": "Some GeForce", "driver": "580.0.0"},
        ),
        BackendSnapshot(
            id="CpuRef",
            state="ready",
            reason="",
            origin="built in",
            version="0.9.0",
            api_version="1.2",
            capabilities=("dynamic shapes",),
        ),
        BackendSnapshot(
            id="Gpu",
            state="skipped",
            reason="no GPU: /dev/dri does not exist",
            origin="nnhal-gpu 1.0",
            version="1.0",
            api_version="1.1",
        ),
    )
    version = "nnhal/0.9.0 CpuAcc/2.3.0 CpuRef/0.9.0"
    return (
        DeviceSnapshot(name="nnhal", type="CPU", version=version, extensions=("org.nnhal.litert",), backends=backends),
        DeviceSnapshot(
            name="exact", type="CPU", version="nnhal/0.9.0 CpuRef/0.9.0", extensions=(), backends=backends[2:3]
        ),
    )


def _workers(now: float, load: LoadSnapshot) -> tuple[WorkerSnapshot, ...]:
    half = LoadSnapshot()
    half.CopyFrom(load)
    half.running, half.queued, half.executions = load.running // 2, load.queued // 2, load.executions // 2
    return (
        WorkerSnapshot(
            slot=0,
            generation=1,
            pid=4250,
            state="serving",
            started_at=now - 2.5 * _DAY_S,
            restarts=0,
            last_end="",
            sessions=13,
            memory_bytes=412 << 20,
            client_bytes=96 << 20,
            threads=34,
            load=half,
        ),
        WorkerSnapshot(
            slot=1,
            generation=4,
            pid=5120,
            state="serving",
            started_at=now - 900,
            restarts=2,
            last_end="signal 11 in CpuAcc",
            sessions=11,
            memory_bytes=388 << 20,
            client_bytes=72 << 20,
            threads=29,
            load=half,
        ),
        WorkerSnapshot(
            slot=2,
            generation=5,
            pid=5300,
            state="draining",
            started_at=now - 6000,
            restarts=0,
            last_end="reload",
            sessions=1,
            memory_bytes=120 << 20,
            client_bytes=1 << 20,
            threads=12,
        ),
    )


def _session(now: float, number: int) -> SessionSnapshot:
    identity = ("token:alice", "token:bob", "spiffe://example.org/camera", "user:1000", "anonymous")[number % 5]
    return SessionSnapshot(
        id=f"s{number:03d}",
        worker=number % 2,
        name=f"s{number}",
        identity=identity,
        client=MARKUP if number == 3 else ("camera-front", "notebook", "")[number % 3],
        peer="unix" if number % 5 == 3 else f"192.0.2.{number}:{40000 + 7 * number}",
        opened_at=now - 40 * (number + 1) ** 2,
        connected=number != 7,
        calls=number % 3,
        memory_bytes=(number * 7919 % 97) << 16,
        models=1 + number % 3,
        objects=4 + number % 11,
    )


def _model(now: float, number: int) -> ModelSnapshot:
    is_mixed = number % 3 == 0
    partitions = (
        PartitionSnapshot(subgraph=0, backend="CpuAcc", operations=_OPERATIONS[:5]),
        PartitionSnapshot(
            subgraph=0,
            backend="CpuRef",
            operations=("LSH_PROJECTION",),
            reasons=("CpuAcc: the operation has no converter",),
        ),
        PartitionSnapshot(subgraph=0, backend="CpuAcc", operations=_OPERATIONS[5:]),
    )
    return ModelSnapshot(
        id=f"m{number:03d}",
        session=f"s{number % 24:03d}",
        worker=number % 2,
        identity=("token:alice", "token:bob", "spiffe://example.org/camera")[number % 3],
        name=f"m{number}",
        model_name=_NAMES[number % len(_NAMES)],
        shadow_compared=number % 5 * 1000,
        shadow_different=number % 5 // 3 * 25,
        digest=f"{(number + 3) * 0x9E3779B97F4A7C15 % (1 << 64):016x}" * 4,
        backends=("CpuAcc", "CpuRef") if is_mixed else ("CpuAcc",),
        priority=("MEDIUM", "HIGH", "LOW")[number % 3],
        cached=number % 2 == 0,
        prepared_at=now - 60 * number - 5,
        uses=number * 1371,
        memory_bytes=(number * 31 % 53) << 18,
        best_s=0.0 if number == 0 else 0.0004 * number,
        longest_s=0.0 if number == 0 else 0.0031 * number,
        partitions=partitions
        if is_mixed
        else (PartitionSnapshot(subgraph=0, backend="CpuAcc", operations=_OPERATIONS),),
    )


def _cache(now: float) -> CacheSnapshot:
    entries = tuple(
        CacheEntrySnapshot(
            identity=("token:alice", "token:bob", "")[number % 3],
            token=f"{(number + 1) * 0x9E3779B97F4A7C15 % (1 << 64):016x}" * 4,
            size=(3 + number) * 1_234_567,
            saved_at=now - 3 * _DAY_S,
            last_used_at=now - 500 * number - 20,
            hits=40 - number,
            backends="CpuAcc/2.3.0 CpuRef/0.9.0",
            model_name=_NAMES[number % len(_NAMES)],
        )
        for number in range(18)
    )
    return CacheSnapshot(
        directory="/home/user/.cache/nnhal",
        size=sum(entry.size for entry in entries),
        max_bytes=2 << 30,
        entries=entries,
        hits=1893,
        misses=211,
        saves=208,
        evictions=12,
        set_aside=1,
        miss_reasons={"not saved": 190, "other version of a backend": 17, "damaged": 4},
    )


def _quarantine(now: float) -> tuple[QuarantineSnapshot, ...]:
    return (
        QuarantineSnapshot(
            digest="ab12" * 16,
            crashes=1,
            last_at=now - 900,
            how="signal 11 (SIGSEGV)",
            backends=("CpuAcc",),
            excluded=("CpuAcc",),
            refused=False,
        ),
        QuarantineSnapshot(
            digest="cd34" * 16,
            crashes=2,
            last_at=now - 7200,
            how="hung for 12 s",
            backends=("CpuAcc", "CpuRef"),
            excluded=(),
            refused=True,
        ),
    )


def _warnings(now: float) -> tuple[WarningSnapshot, ...]:
    return (
        WarningSnapshot(
            at=now - 7200,
            level="ERROR",
            event="worker-ended",
            text="worker=1 how='signal 11' model=cd34cd34",
            worker=-1,
        ),
        WarningSnapshot(
            at=now - 900, level="ERROR", event="worker-ended", text="worker=1 how='signal 11' model=ab12ab12", worker=-1
        ),
        WarningSnapshot(at=now - 60, level="WARNING", event="cache-full", text="bytes=2147483648 evicted=3", worker=0),
        WarningSnapshot(
            at=now - 5, level="WARNING", event="queue-full", text=f"session=s3 client='{MARKUP}'", worker=1
        ),
    )
