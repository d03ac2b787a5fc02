"""View of an invented service: many of everything, texts with markup, and load that changes with time."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnhal_service.admin.view import (
    AbilitySnapshot,
    AdminError,
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

MARKUP = "<img src=x onerror=alert(1)>"
"""Name that a hostile client gives itself."""
BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
_DAY_S = 86400.0
_OPERATIONS = ("CONV_2D", "DEPTHWISE_CONV_2D", "ADD", "CONV_2D", "RELU", "AVERAGE_POOL_2D", "RESHAPE", "SOFTMAX")


class FakeView:
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
            OperationSnapshot("ADD", "TENSOR_FLOAT32", {"CpuAcc": "depends", "CpuRef": "yes"}, {}),
            OperationSnapshot("ADD", "TENSOR_INT32", {"CpuAcc": "depends", "CpuRef": "yes"}, {}),
            OperationSnapshot("RELU", "TENSOR_FLOAT32", {"CpuAcc": "yes", "CpuRef": "yes"}, {}),
            OperationSnapshot("RELU", "TENSOR_QUANT8_ASYMM_SIGNED", {"CpuAcc": "yes", "CpuRef": "yes"}, {}),
            OperationSnapshot(
                "LSH_PROJECTION", "TENSOR_FLOAT32", {"CpuAcc": "no", "CpuRef": "yes"}, {"CpuAcc": reason}
            ),
            OperationSnapshot("WHILE", "TENSOR_BOOL8", {}, {}),
        )
        performance = (PerformanceSnapshot("TENSOR_FLOAT32", 0.31, 0.3), PerformanceSnapshot("INT32", 1.0, 1.0))
        return (
            AbilitySnapshot("nnhal", operations, performance),
            AbilitySnapshot("exact", operations[-1:], performance[:1]),
        )

    def settings(self) -> Sequence[SettingSnapshot]:
        self._fail()
        return (
            SettingSnapshot("listen", '["127.0.0.1:50051"]', "default"),
            SettingSnapshot("workers", "2", "--workers"),
            SettingSnapshot("log_level", '"DEBUG"', "NNHAL_LOG_LEVEL"),
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

    def reload(self, by: str) -> str:
        return self._act("reload", by)

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
    return replace(
        load,
        running=round(3 * wave),
        queued=max(round(12 * (wave - 1)), 0),
        preparing=int(wave),
        executions=load.executions + sum(durations),
        rejected=load.rejected + int(max(0, wave - 1.3) * 10),
        durations=tuple(a + b for a, b in zip(load.durations, durations, strict=True)),
        waits=tuple(a + b for a, b in zip(load.waits, waits, strict=True)),
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
        cache=CacheSnapshot("/home/user/.cache/nnhal", max_bytes=2 << 30) if is_empty else _cache(now),
        quarantine=() if is_empty else _quarantine(now),
        warnings=() if is_empty else _warnings(now),
        member="" if is_empty else "nnhal-0-5bd3f0",
        members=() if is_empty else _members(load),
    )


def _members(load: LoadSnapshot) -> tuple[MemberSnapshot, ...]:
    return (
        MemberSnapshot(
            "nnhal-0-5bd3f0", "nnhal-0", "10.0.0.1:50051", "0.9.0", 1, False, 8, 9 << 30, 24, load.running, ("CpuAcc",)
        ),
        MemberSnapshot(
            "nnhal-1-77aa12", "nnhal-1", "10.0.0.2:50051", "0.9.0", 1, True, 8, 5 << 30, 3, 1, ("CpuRef",), ("Npu",), 7
        ),
    )


def _devices() -> tuple[DeviceSnapshot, ...]:
    backends = (
        BackendSnapshot(
            "Npu", "failed", "cannot load libnpu.so: no such file; install the driver", "/opt/nnhal/backends/Npu", "2.1"
        ),
        BackendSnapshot(
            "CpuAcc",
            "ready",
            "",
            "built in",
            "2.3.0",
            "1.2",
            ("cached models", "device memory", "dynamic shapes", "profiling"),
            quarantined_models=1,
        ),
        BackendSnapshot("CpuRef", "ready", "", "built in", "0.9.0", "1.2", ("dynamic shapes",)),
        BackendSnapshot("Gpu", "skipped", "no GPU: /dev/dri does not exist", "nnhal-gpu 1.0", "1.0", "1.1"),
    )
    version = "nnhal/0.9.0 CpuAcc/2.3.0 CpuRef/0.9.0"
    return (
        DeviceSnapshot("nnhal", "CPU", version, ("org.nnhal.litert",), backends),
        DeviceSnapshot("exact", "CPU", "nnhal/0.9.0 CpuRef/0.9.0", (), backends[2:3]),
    )


def _workers(now: float, load: LoadSnapshot) -> tuple[WorkerSnapshot, ...]:
    half = replace(load, running=load.running // 2, queued=load.queued // 2, executions=load.executions // 2)
    return (
        WorkerSnapshot(0, 1, 4250, "serving", now - 2.5 * _DAY_S, 0, "", 13, 412 << 20, 96 << 20, 34, half),
        WorkerSnapshot(1, 4, 5120, "serving", now - 900, 2, "signal 11 in CpuAcc", 11, 388 << 20, 72 << 20, 29, half),
        WorkerSnapshot(2, 5, 5300, "draining", now - 6000, 0, "reload", 1, 120 << 20, 1 << 20, 12),
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
        PartitionSnapshot(0, "CpuAcc", _OPERATIONS[:5]),
        PartitionSnapshot(0, "CpuRef", ("LSH_PROJECTION",), ("CpuAcc: the operation has no converter",)),
        PartitionSnapshot(0, "CpuAcc", _OPERATIONS[5:]),
    )
    return ModelSnapshot(
        id=f"m{number:03d}",
        session=f"s{number % 24:03d}",
        worker=number % 2,
        identity=("token:alice", "token:bob", "spiffe://example.org/camera")[number % 3],
        name=f"m{number}",
        digest=f"{(number + 3) * 0x9E3779B97F4A7C15 % (1 << 64):016x}" * 4,
        backends=("CpuAcc", "CpuRef") if is_mixed else ("CpuAcc",),
        priority=("MEDIUM", "HIGH", "LOW")[number % 3],
        cached=number % 2 == 0,
        prepared_at=now - 60 * number - 5,
        uses=number * 1371,
        memory_bytes=(number * 31 % 53) << 18,
        best_s=0.0 if number == 0 else 0.0004 * number,
        longest_s=0.0 if number == 0 else 0.0031 * number,
        partitions=partitions if is_mixed else (PartitionSnapshot(0, "CpuAcc", _OPERATIONS),),
    )


def _cache(now: float) -> CacheSnapshot:
    entries = tuple(
        CacheEntrySnapshot(
            ("token:alice", "token:bob", "")[number % 3],
            f"{(number + 1) * 0x9E3779B97F4A7C15 % (1 << 64):016x}" * 4,
            (3 + number) * 1_234_567,
            now - 3 * _DAY_S,
            now - 500 * number - 20,
            40 - number,
            "CpuAcc/2.3.0 CpuRef/0.9.0",
        )
        for number in range(18)
    )
    return CacheSnapshot(
        "/home/user/.cache/nnhal",
        sum(entry.size for entry in entries),
        2 << 30,
        entries,
        hits=1893,
        misses=211,
        saves=208,
        evictions=12,
        set_aside=1,
        miss_reasons={"not saved": 190, "other version of a backend": 17, "damaged": 4},
    )


def _quarantine(now: float) -> tuple[QuarantineSnapshot, ...]:
    return (
        QuarantineSnapshot("ab12" * 16, 1, now - 900, "signal 11 (SIGSEGV)", ("CpuAcc",), ("CpuAcc",), False),
        QuarantineSnapshot("cd34" * 16, 2, now - 7200, "hung for 12 s", ("CpuAcc", "CpuRef"), (), True),
    )


def _warnings(now: float) -> tuple[WarningSnapshot, ...]:
    return (
        WarningSnapshot(now - 7200, "ERROR", "worker-ended", "worker=1 how='signal 11' model=cd34cd34", -1),
        WarningSnapshot(now - 900, "ERROR", "worker-ended", "worker=1 how='signal 11' model=ab12ab12", -1),
        WarningSnapshot(now - 60, "WARNING", "cache-full", "bytes=2147483648 evicted=3", 0),
        WarningSnapshot(now - 5, "WARNING", "queue-full", f"session=s3 client='{MARKUP}'", 1),
    )
