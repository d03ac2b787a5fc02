"""View of a running service for operators: its state as plain values, and the actions that change it.

The page and the admin interface show the same `ServiceSnapshot`. It contains no handle, token or other secret.
Times are seconds since 1970, durations seconds, and sizes bytes, unless a name says otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BackendSnapshot:
    """Report on a backend of a device.

    Attributes:
        id: its id; "" if the candidate failed before its id was known.
        state: "ready", "skipped" or "failed".
        reason: why it was skipped or failed.
        origin: "built in", or the file or package of the plug-in.
        version: version of the backend.
        api_version: version of the interface that it was written for.
        capabilities: names of what it can do.
        quarantined_models: number of models that are kept from it.
    """

    id: str
    state: str
    reason: str = ""
    origin: str = ""
    version: str = ""
    api_version: str = ""
    capabilities: tuple[str, ...] = ()
    quarantined_models: int = 0


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """A device.

    Attributes:
        name: its name.
        type: "CPU", "GPU", "ACCELERATOR" or "OTHER".
        version: its version string.
        extensions: names of its vendor extensions.
        backends: the candidates for backends, in order of preference.
    """

    name: str
    type: str
    version: str
    extensions: tuple[str, ...]
    backends: tuple[BackendSnapshot, ...]


@dataclass(frozen=True, slots=True)
class OperationSnapshot:
    """Support of an operation with one type of operands, as far as it is known without a model.

    Attributes:
        operation: its name.
        type: type of the first input that may have several types.
        answers: "yes", "no", or "depends" on shapes and constants, by the id of the backend. Empty if the driver runs
            the operation itself.
        reasons: for the backends that answer "no", why.
    """

    operation: str
    type: str
    answers: Mapping[str, str]
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PerformanceSnapshot:
    """Performance of a device on operands of one type, relative to the CPU. Less is better.

    Attributes:
        type: type of the operands; or IF, WHILE, and RELAXED_FLOAT32 with SCALAR or TENSOR.
        exec_time: ratio of the running times.
        power_usage: ratio of the power.
    """

    type: str
    exec_time: float
    power_usage: float


@dataclass(frozen=True, slots=True)
class AbilitySnapshot:
    """Abilities of a device, which a worker finds out once.

    Attributes:
        device: name of the device.
        operations: support of all operations of the HAL.
        performance: its performance figures.
    """

    device: str
    operations: tuple[OperationSnapshot, ...]
    performance: tuple[PerformanceSnapshot, ...]


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Work of one worker, or of all. The totals count since the start of the service.

    Attributes:
        running: executions in progress.
        queued: executions that wait for a slot.
        preparing: preparations in progress or waiting.
        executions: executions that have run, with any result.
        rejected: executions that were rejected or ended before they ran: full queue, deadline, cancellation.
        bounds_s: upper bounds of the classes of durations; the last class has none.
        durations: number of executions by class: one more than `bounds_s`.
        waits: the same for the time in the queue.
        waited_s: seconds that all executions together have been in the queue.
    """

    running: int = 0
    queued: int = 0
    preparing: int = 0
    executions: int = 0
    rejected: int = 0
    bounds_s: tuple[float, ...] = ()
    durations: tuple[int, ...] = ()
    waits: tuple[int, ...] = ()
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WorkerSnapshot:
    """A worker process.

    Attributes:
        slot: its number.
        generation: number of its start, over all workers.
        pid: id of its process; 0 while it starts.
        state: "starting", "serving", "draining" (finishes its work), "drained" or "silent" (does not answer).
        started_at: time of its start.
        restarts: how often the worker of this slot had to be started again.
        last_end: how its predecessor ended; "" if it has none.
        sessions: number of its sessions.
        memory_bytes: resident memory of its process.
        client_bytes: memory that its clients use.
        threads: number of its threads.
        load: its work.
    """

    slot: int
    generation: int
    pid: int
    state: str
    started_at: float
    restarts: int = 0
    last_end: str = ""
    sessions: int = 0
    memory_bytes: int = 0
    client_bytes: int = 0
    threads: int = 0
    load: LoadSnapshot = field(default_factory=LoadSnapshot)


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session.

    Attributes:
        id: its id for operators; not the secret token of its client.
        worker: number of its worker.
        name: its name in the log of that worker.
        identity: identity of the client, for example "user:1000" or "anonymous".
        client: name that the client gave itself.
        peer: address of the client.
        opened_at: time of its start.
        connected: whether the client is connected; otherwise its grace time runs.
        calls: calls in progress.
        memory_bytes: memory that it uses.
        models: number of its prepared models.
        objects: number of all its objects.
        placement: member of the fleet that has sent the client here, and why, as the client says; or "".
    """

    id: str
    worker: int
    name: str
    identity: str
    client: str
    peer: str
    opened_at: float
    connected: bool
    calls: int
    memory_bytes: int
    models: int
    objects: int
    placement: str = ""


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """Operations of a model that one backend runs as a unit.

    Attributes:
        subgraph: 0 for the main one.
        backend: id of the backend.
        operations: names of the operations, in order.
        reasons: why backends of higher preference do not run some of them, without repetitions.
    """

    subgraph: int
    backend: str
    operations: tuple[str, ...]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelSnapshot:
    """A prepared model of a session.

    Attributes:
        id: its id for operators; not the secret handle of its client.
        session: id of its session.
        worker: number of its worker.
        identity: identity of the client.
        name: its name in the log of its worker.
        digest: SHA-256 of graph and constants in hexadecimal; "" if unknown.
        backends: ids of the backends that run it, in order of preference.
        priority: "LOW", "MEDIUM" or "HIGH".
        cached: whether it was loaded from the cache.
        prepared_at: time at which it was prepared.
        uses: number of its executions that have succeeded.
        memory_bytes: bytes of its constants and of what its engines keep, as far as they are known; 0 if unknown.
        best_s: shortest recent duration of an execution; 0 if unknown.
        longest_s: longest duration of an execution; 0 before the first one.
        partitions: where its operations run.
    """

    id: str
    session: str
    worker: int
    identity: str
    name: str
    digest: str
    backends: tuple[str, ...]
    priority: str
    cached: bool
    prepared_at: float
    uses: int
    memory_bytes: int
    best_s: float
    longest_s: float
    partitions: tuple[PartitionSnapshot, ...]


@dataclass(frozen=True, slots=True)
class CacheEntrySnapshot:
    """A saved model in the cache.

    Attributes:
        identity: identity of its owner; "" if the entry is damaged.
        token: the token of the client, in hexadecimal.
        size: bytes of its files.
        saved_at: time of the save.
        last_used_at: time of the last use.
        hits: how often it was used.
        backends: the backends that it was saved for, with their versions.
    """

    identity: str
    token: str
    size: int
    saved_at: float
    last_used_at: float
    hits: int
    backends: str = ""


@dataclass(frozen=True, slots=True)
class CacheSnapshot:
    """The cache of saved models. The counts are those of the running workers.

    Attributes:
        directory: its directory.
        size: bytes of all entries.
        max_bytes: limit of the size; 0 if the cache is off.
        entries: the entries, most recently used first.
        hits, misses, saves, evictions: counts since the start of the workers.
        set_aside: number of damaged entries that were moved aside.
        miss_reasons: number of misses by reason.
    """

    directory: str
    size: int = 0
    max_bytes: int = 0
    entries: tuple[CacheEntrySnapshot, ...] = ()
    hits: int = 0
    misses: int = 0
    saves: int = 0
    evictions: int = 0
    set_aside: int = 0
    miss_reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QuarantineSnapshot:
    """A model in quarantine.

    Attributes:
        digest: digest of the model in hexadecimal.
        crashes: number of crashes for which it is suspect.
        last_at: time of the last one.
        how: how the worker ended then.
        backends: ids of the backends whose code ran.
        excluded: ids of the backends that do not run it now.
        refused: whether it is refused altogether.
    """

    digest: str
    crashes: int
    last_at: float
    how: str
    backends: tuple[str, ...]
    excluded: tuple[str, ...]
    refused: bool


@dataclass(frozen=True, slots=True)
class WarningSnapshot:
    """Something that an operator should know: a line of the log with level WARNING or ERROR.

    Attributes:
        at: time of the line.
        level: "WARNING" or "ERROR".
        event: name of the event.
        text: its fields, as in the log.
        worker: number of the worker; -1 for the supervisor.
    """

    at: float
    level: str
    event: str
    text: str
    worker: int = -1


@dataclass(frozen=True, slots=True)
class SettingSnapshot:
    """An effective setting.

    Attributes:
        name: its name.
        value: its value in TOML; "" if it is not set; "(secret)" if it is one.
        origin: a file, an environment variable, an option, or "default".
    """

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class MemberSnapshot:
    """A member of the fleet, as the service knows it.

    Attributes:
        id: its id.
        host: name of its host.
        address: its address for clients.
        version: its version of nnhal.
        generation: number of its starts.
        draining: whether it takes no more sessions.
        cpus: number of its CPUs.
        free_bytes: memory of its host that is available.
        sessions: number of its sessions.
        executions: number of executions and preparations that run or wait.
        backends: ids of its backends that are ready.
        accelerators: names of the accelerators of its host.
        models: number of models that it has told of.
        wait_s: mean time that executions have waited lately.
    """

    id: str
    host: str
    address: str
    version: str
    generation: int
    draining: bool
    cpus: int
    free_bytes: int
    sessions: int
    executions: int
    backends: tuple[str, ...] = ()
    accelerators: tuple[str, ...] = ()
    models: int = 0
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """State of a service at one moment.

    Attributes:
        at: time of the snapshot.
        version: version of nnhal.
        state: "serving", "starting" (not all workers serve), "reloading", "draining" or "stopping".
        pid: id of the process of the supervisor.
        started_at: time of its start.
        addresses: addresses for clients.
        log_level: lowest severity that is logged.
        load: work of all workers together.
        devices: the devices.
        workers: the workers, by number.
        sessions: the sessions of all workers.
        models: the prepared models of all sessions.
        cache: the cache.
        quarantine: the models in quarantine.
        warnings: the last warnings and errors, oldest first.
        host: name of its host.
        cpus: number of CPUs that it may use.
        free_bytes: memory of the host that programs can get without swapping.
        member: its id in its fleet; "" if it belongs to none, or does not know it yet.
        members: the members of its fleet that it knows, with itself.
    """

    at: float
    version: str
    state: str
    pid: int
    started_at: float
    addresses: tuple[str, ...]
    log_level: str
    load: LoadSnapshot
    devices: tuple[DeviceSnapshot, ...]
    workers: tuple[WorkerSnapshot, ...]
    sessions: tuple[SessionSnapshot, ...]
    models: tuple[ModelSnapshot, ...]
    cache: CacheSnapshot
    quarantine: tuple[QuarantineSnapshot, ...]
    warnings: tuple[WarningSnapshot, ...]
    host: str = ""
    cpus: int = 0
    free_bytes: int = 0
    member: str = ""
    members: tuple[MemberSnapshot, ...] = ()


class AdminError(Exception):
    """An action that cannot be done. The text says why."""


class ServiceView(Protocol):
    """A running service. Thread safe; every method may take some seconds, if a worker does not answer.

    Callers check first that `by` may administer. Every action is in the audit log, with `by` and its result.
    """

    def snapshot(self) -> ServiceSnapshot:
        """Return the state."""

    def abilities(self) -> Sequence[AbilitySnapshot]:
        """Return what the devices can do. The first call may take some seconds, if the devices must be measured.

        Raises:
            AdminError: no worker answers.
        """

    def settings(self) -> Sequence[SettingSnapshot]:
        """Return the effective settings."""

    def metrics(self, accept: str = "") -> tuple[bytes, str]:
        """Return the metrics of all workers for Prometheus, and their content type.

        Args:
            accept: the header `Accept` of the request, which selects the format.
        """

    def stacks(self, by: str, worker: int | None = None) -> Mapping[str, str]:
        """Return the stacks of all threads, of one worker or of all, by the name of the process.

        Raises:
            AdminError: there is no such worker.
        """

    def drain(self, by: str, worker: int | None = None) -> str:
        """Have a worker, or all, take no more sessions, and send its clients elsewhere. What runs has its grace time.

        Returns:
            the result in words; that of the other actions is of the same kind.

        Raises:
            AdminError: there is no such worker.
        """

    def resume(self, by: str, worker: int | None = None) -> str:
        """Undo `drain`.

        Raises:
            AdminError: there is no such worker.
        """

    def reload(self, by: str) -> str:
        """Read the settings and plug-ins again, and replace the workers one by one.

        Raises:
            AdminError: a setting is invalid, or the service stops.
        """

    def end_session(self, by: str, session: str) -> str:
        """End a session at once.

        Args:
            by: who asks for it.
            session: its id in the snapshot.

        Raises:
            AdminError: there is no such session.
        """

    def clear_quarantine(self, by: str, digests: Sequence[str] = ()) -> str:
        """Allow models again.

        Args:
            by: who asks for it.
            digests: the first hexadecimal digits of their digests; all models if there are none.

        Raises:
            AdminError: no digest starts with the digits, or the file cannot be written.
        """

    def clear_cache(self, by: str, identity: str | None = None, tokens: Sequence[str] = ()) -> str:
        """Remove entries of the cache.

        Args:
            by: who asks for it.
            identity: owner of the entries; None for all owners.
            tokens: the first hexadecimal digits of their tokens; all of them if there are none.

        Raises:
            AdminError: no token starts with the digits, or the cache cannot be used.
        """

    def set_log_level(self, by: str, level: str) -> str:
        """Log from this severity on, in all processes, until the next start or reload.

        Args:
            by: who asks for it.
            level: DEBUG, INFO, WARNING or ERROR.

        Raises:
            AdminError: the level is unknown.
        """
