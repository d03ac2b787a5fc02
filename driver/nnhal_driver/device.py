"""Device (IDevice): capabilities, preparation and allocation."""

import secrets
import weakref
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial

from nnhal.cpu import available_cpus
from nnhal.errors import MISSED_DEADLINE, HalError
from nnhal.types import (
    OMITTED,
    BufferDesc,
    BufferRole,
    CacheOutcome,
    CacheState,
    Capabilities,
    DeviceType,
    Extension,
    Model,
    NumberOfCacheFiles,
    Placement,
    PrepareModelConfig,
    Priority,
)
from nnhal.version import __version__
from nnhal_driver.activity import ActivityTable, Stage
from nnhal_driver.backends import lifetime
from nnhal_driver.backends.allocators import CustomAllocator
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.allocation import offer_allocator
from nnhal_driver.backends.boundary.answers import extensions, identity_fault
from nnhal_driver.backends.identity import full_version
from nnhal_driver.compilation.placement import place
from nnhal_driver.execution.buffer import Buffer, ReserveMemory, reserve_nothing
from nnhal_driver.execution.buffer_table import BufferTable, LiveBuffers
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.graph import build_graphs, drop_caches
from nnhal_driver.memory_estimate import model_bytes
from nnhal_driver.model_cache.cache import ModelCache, SaveTarget
from nnhal_driver.model_cache.environment import BuildEnvironment
from nnhal_driver.model_cache.errors import CacheMissError
from nnhal_driver.model_cache.files import FILE_COUNTS, NO_FILES, CacheFiles, MissingFiles, OpenFiles
from nnhal_driver.model_probe import ModelProbe
from nnhal_driver.operations.shape import MAX_TENSOR_BYTES
from nnhal_driver.performance.store import PerformanceStore
from nnhal_driver.preparation.model_memory import ModelMemory, saved_size
from nnhal_driver.preparation.model_preparer import ModelPreparer, share_model
from nnhal_driver.preparation.outcome import PreparationCallback, failed_outcome, notify_once
from nnhal_driver.preparation.work import PreparationWork, run_preparation
from nnhal_driver.quarantine import NoQuarantine, Quarantine
from nnhal_driver.scheduling.admission import ExecutionCounts
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.collector_pause import pause_collector
from nnhal_driver.scheduling.deadline import Deadline
from nnhal_driver.scheduling.paced_check import CurrentCheck, PacedCheck, call_check, proceed
from nnhal_driver.scheduling.preparation import Check, PreparationTask
from nnhal_driver.scheduling.scheduler import QueueLimits, Scheduler
from nnhal_driver.scheduling.ticket import AdmissionRequest
from nnhal_driver.scheduling.work_times import WorkTimes
from nnhal_driver.validation.model import validate_model
from nnhal_driver.validation.preparation import validate_hints, validate_preparation

_PREPARATION_THREADS = 2
_LARGE_MODEL = 10_000
"""Operands and arguments of the largest model that is analysed without a slot. That takes some tens of milliseconds."""


_DEFAULT_CONFIG = PrepareModelConfig()
_QUEUES = QueueLimits(preparations=256, executions=1024)


class Device:
    """Ordered list of backends, with the threads that serve them. Thread safe. Close it when done.

    Args:
        name: name of the device.
        backends: in order of preference.
        queues: maximum lengths of the queues.
        tensor_bytes: maximum size of a tensor in an execution.
        cache_key: secret key that seals cache files. Without one, only this object can load the files that it saves.
        check_cached_data: whether to check the digest of data caches. Without the check, a changed file may give wrong
            results.
        performance: store of performance figures, which the devices of a process share.
        merge_partitions: whether a partition that does not pay for its boundary moves to the backend of a neighbor.
        disabled_extensions: names of extensions of the backends that the device does not support.
        cache_unusable: why the device does not cache models, or "".
        buffers: the buffers of the service, which its devices share so that no two buffers have the same token.
        allocator: allocator to offer to the backends.
        type_: type to report; None for that of the first backend, which is the preferred one.
        activities: table of the work in progress; None if it is not recorded.
        quarantine: the models that have crashed a process like this.
        prober: prepares and runs new models in another process first; None to trust them.

    Attributes:
        allocator_refusals: why a backend does not use the allocator, or "", by id; empty without an allocator.

    Raises:
        ValueError: the id or the version of a backend is invalid.
    """

    def __init__(
        self,
        name: str,
        backends: Sequence[Backend],
        queues: QueueLimits = _QUEUES,
        tensor_bytes: int = MAX_TENSOR_BYTES,
        cache_key: bytes | None = None,
        check_cached_data: bool = True,
        performance: PerformanceStore | None = None,
        merge_partitions: bool = True,
        disabled_extensions: Collection[str] = (),
        cache_unusable: str = "",
        buffers: LiveBuffers | None = None,
        allocator: CustomAllocator | None = None,
        type_: DeviceType | None = None,
        activities: ActivityTable | None = None,
        quarantine: Quarantine | None = None,
        prober: ModelProbe | None = None,
    ) -> None:
        self.name = name
        self._buffers = BufferTable(tensor_bytes, buffers or LiveBuffers())
        self._performance = performance or PerformanceStore()
        self.backends = tuple(backends)
        self._type = type_ or next((backend.device_type for backend in backends), DeviceType.CPU)
        for backend in self.backends:
            if fault := identity_fault(backend):
                raise ValueError(f"a {type(backend).__name__} cannot be a backend of {name}: {fault}")
        key = secrets.token_bytes(32) if cache_key is None else cache_key
        if activities is not None:
            activities.know([backend.id for backend in self.backends])
        self._prober = prober
        self._merge = merge_partitions
        self._disabled_extensions = frozenset(disabled_extensions)
        self._cache_unusable = cache_unusable
        # a plan with merged partitions, or with an extension, must not be found by a device that forbids them
        driver = __version__ if merge_partitions else f"{__version__}, no merged partitions"
        driver += "".join(f", no {name}" for name in sorted(self._disabled_extensions))
        self._cache = ModelCache(driver, self.backends, key, tensor_bytes, check_data=check_cached_data)
        self._scheduler = Scheduler(available_cpus(), _PREPARATION_THREADS, queues)
        self._preparer = ModelPreparer(
            name,
            self.backends,
            self._cache,
            self._scheduler,
            self._buffers,
            quarantine or NoQuarantine(),
            activities,
            tensor_bytes,
            merge_partitions,
            partial(_supported_extensions, self.backends, self._disabled_extensions),
        )
        self.allocator_refusals = {} if allocator is None else offer_allocator(self.backends, allocator)
        lifetime.acquire(self.backends)
        self._close_backends = weakref.finalize(self, lifetime.release, self.backends)
        self._close_backends.atexit = False

    def close(self) -> None:
        """Finish the queued preparations, end the threads, and close the backends that no prepared model uses."""
        self._scheduler.close()
        self._close_backends()

    @property
    def execution_counts(self) -> ExecutionCounts:
        """Numbers of executions since the start, by outcome."""
        return self._scheduler.admission.counts

    @property
    def running_executions(self) -> int:
        """Number of executions that have a slot."""
        return self._scheduler.admission.running

    @property
    def running_preparations(self) -> int:
        """Number of preparations that have a slot."""
        return self._scheduler.preparations.running

    @property
    def queued_executions(self) -> int:
        """Number of executions that wait for a slot."""
        return self._scheduler.admission.waiting

    @property
    def queued_preparations(self) -> int:
        """Number of preparations and analyses that wait for a slot."""
        return self._scheduler.preparations.waiting + self._scheduler.analyses.waiting

    def get_capabilities(self) -> Capabilities:
        """Return performance figures. The first call for a set of backends measures them, which may take a second."""
        return self._performance.capabilities(self.backends, self.get_version_string())

    def get_number_of_cache_files_needed(self) -> NumberOfCacheFiles:
        """Return one of each kind, for all backends; none if the device does not cache."""
        return NO_FILES if self._cache_unusable else FILE_COUNTS

    @property
    def build_environment(self) -> BuildEnvironment:
        """The environment that a saved model depends on: versions, backends and CPU."""
        return self._cache.environment

    def get_supported_extensions(self) -> tuple[Extension, ...]:
        """Return the well-formed extensions of the backends. Of several with the same name, the first counts."""
        return _supported_extensions(self.backends, self._disabled_extensions)

    def get_type(self) -> DeviceType:
        """Return the type of the device: the one that its operator chose, or that of its first backend."""
        return self._type

    def get_version_string(self) -> str:
        """Return the versions of the driver and of its backends."""
        backends = " ".join(f"{backend.id}/{full_version(backend)}" for backend in self.backends)
        return f"nnhal/{__version__} {backends}"

    @contextmanager
    def admit_analysis(
        self, size: int, deadline_ns: int = OMITTED, owner: Hashable = None, cancellation: Cancellation | None = None
    ) -> Iterator[Check]:
        """Yield the check for the analysis of a model on the calling thread. Large models are analysed one at a time.

        Args:
            size: number of operands and arguments of the model.
            deadline_ns: instant of CLOCK_BOOTTIME, or -1.
            owner: the client on whose behalf it runs; owners are served fairly.
            cancellation: ends the wait and the analysis.

        Raises:
            HalError: MISSED_DEADLINE_TRANSIENT, RESOURCE_EXHAUSTED_TRANSIENT: the queue is full, or GENERAL_FAILURE:
                cancelled.
        """
        deadline = Deadline(deadline_ns)
        check = call_check(deadline, cancellation, "the analysis of the model")
        if size <= _LARGE_MODEL:
            yield check
            return
        request = AdmissionRequest(Priority.MEDIUM, deadline, owner)
        with self._scheduler.analyses.admit(request, cancellation), pause_collector():
            yield check

    def get_supported_operations(
        self, model: Model, reserve: ReserveMemory = reserve_nothing, check: Check = proceed
    ) -> tuple[list[bool], Placement]:
        """Return for each operation of main whether it is supported, and the placement with the reasons.

        Args:
            model: the model.
            reserve: as for `prepare_model`.
            check: as for `prepare_model`.

        Raises:
            HalError: INVALID_ARGUMENT, with the rule that the model breaks; or what `reserve` or `check` raises.
        """
        validate_model(model, check)
        reservation = reserve(model_bytes(model))
        graphs = build_graphs(model, self._disabled_extensions, check)
        try:
            placement = place(graphs, self.backends, merge=self._merge)
        finally:
            drop_caches(graphs)
        del reservation
        return [bool(operation.backend) for operation in placement.operations if operation.subgraph == 0], placement

    def prepare_model(
        self,
        model: Model,
        callback: PreparationCallback,
        config: PrepareModelConfig = _DEFAULT_CONFIG,
        cache: CacheFiles | None = None,
        owner: Hashable = None,
        digest: bytes = b"",
        reserve: ReserveMemory = reserve_nothing,
        check: Check = proceed,
        times: WorkTimes | None = None,
    ) -> Cancellation:
        """Launch a preparation in the background (hal-surface 8.1).

        The callback is called exactly once, even after a launch error (before it is raised), and possibly before this
        method returns. Its outcome is NONE with the model; GENERAL_FAILURE for an operation that no backend supports;
        MISSED_DEADLINE_*; or the error of the launch. A missed deadline is reported when it passes, TRANSIENT if time
        was lost in the queue, else PERSISTENT. It is never an error of the launch (PREP-03).

        Args:
            model: the model.
            callback: receives the outcome.
            config: preference, priority, deadline and hints.
            cache: files to save to. They never make a preparation fail (V-PREP-04): problems become warnings. The
                descriptors may be closed once this method has returned.
            owner: the client on whose behalf it runs; owners are served fairly.
            digest: digest of the model, see `nnhal.model_digest`; b"" if it is unknown.
            reserve: reserves the memory of the model, as estimated, until the model is freed; raises to reject it.
            check: called between the steps of the launch, which checks the model; see `admit_analysis`.
            times: receives the times of the preparation.

        Returns:
            the cancellation of the preparation.

        Raises:
            HalError: INVALID_ARGUMENT: model, preference, priority, deadline or hints are invalid;
                RESOURCE_EXHAUSTED_TRANSIENT: there is not enough memory, the queue is full, or `reserve` raises.
        """
        cancellation = Cancellation()
        callback = notify_once(callback)
        save_target = SaveTarget()
        try:
            save_target = SaveTarget(cache, self._cache_unusable, digest)
            validate_preparation(config.preference, config.priority, config.deadline_ns)
            validate_hints(config.compilation_hints, config.extension_name_to_prefix)
            validate_model(model, check)
            deadline = Deadline(config.deadline_ns)
            size = model_bytes(model)
            memory = ModelMemory(reserve, reserve(size), size)
            # now, not on the thread: the client may write to the memory of the model once this method has returned
            current = CurrentCheck()
            with current.stage(check):
                graphs = build_graphs(model, self._disabled_extensions, current)
            relaxed = model.relax_computation_float32_to_float16
            probe = self._prober.begin(self.name, model, digest) if self._prober is not None else None
            work = PreparationWork(
                self._preparer.recording(
                    Stage.PREPARING,
                    digest,
                    config.deadline_ns,
                    cancellation,
                    lambda check: current.during(
                        PacedCheck(check),
                        lambda: self._preparer.compile(
                            graphs, relaxed, config, check, save_target, digest, memory, probe
                        ),
                    ),
                ),
                callback,
                save_target.close,
            )
            request = AdmissionRequest(config.priority, deadline, owner)
            self._scheduler.prepare(PreparationTask(request, cancellation, work, times))
        except BaseException as error:
            save_target.close()
            outcome = failed_outcome(error)
            callback(outcome)
            if outcome.status in MISSED_DEADLINE:  # PREP-03: the launch has succeeded
                return cancellation
            if isinstance(error, MemoryError):
                raise HalError(outcome.status, outcome.reason) from error
            raise
        return cancellation

    def prepare_model_from_cache(
        self,
        callback: PreparationCallback,
        cache: CacheFiles | MissingFiles,
        deadline_ns: int = OMITTED,
        preloaded: PreparedModel | None = None,
        owner: Hashable = None,
        reserve: ReserveMemory = reserve_nothing,
        times: WorkTimes | None = None,
    ) -> Cancellation:
        """Launch a preparation from files that `prepare_model` saved (hal-surface 8.1).

        The callback is called as for `prepare_model`. The launch checks the model cache. The digest of the data cache
        is checked in the background; if it is wrong, the outcome is GENERAL_FAILURE. In both cases the reason is in
        `Outcome.cache`. A model keeps the priority and preference that it was saved with.

        Args:
            callback: receives the outcome.
            cache: files to load, whose descriptors may be closed once this method has returned.
            deadline_ns: instant of CLOCK_BOOTTIME, or -1.
            preloaded: a model that this device has loaded from the same files. If they have not changed since, the
                callback gets at once a model that shares its plan.
            owner: as for `prepare_model`.
            reserve: as for `prepare_model`.
            times: as for `prepare_model`.

        Returns:
            the cancellation of the preparation.

        Raises:
            HalError: INVALID_ARGUMENT: the number of files, an access mode, the token or the deadline; GENERAL_FAILURE:
                the device does not cache, or the files contain no model for it; or what `reserve` raises.
        """
        cancellation = Cancellation()
        callback = notify_once(callback)
        try:
            validate_preparation(_DEFAULT_CONFIG.preference, _DEFAULT_CONFIG.priority, deadline_ns)
            deadline = Deadline(deadline_ns)
            files = self._open_files(cache)
            try:
                size = saved_size(files)
                memory = ModelMemory(reserve, reserve(size), size)
                verified = self._cache.verify(files)
                if preloaded is not None and preloaded.loaded_from == verified.identity:
                    callback(
                        run_preparation(closing(files), lambda: share_model(preloaded, deadline, cancellation, reserve))
                    )
                    return cancellation
                work = PreparationWork(
                    self._preparer.recording(
                        Stage.LOADING,
                        verified.digest,
                        deadline_ns,
                        cancellation,
                        lambda check: self._preparer.load(verified, check, memory),
                    ),
                    callback,
                    files.close,
                )
                request = AdmissionRequest(_DEFAULT_CONFIG.priority, deadline, owner)
                self._scheduler.prepare(PreparationTask(request, cancellation, work, times))
            except BaseException:
                files.close()
                raise
        except (CacheMissError, MemoryError) as error:
            outcome = failed_outcome(error)
            callback(outcome)
            raise HalError(outcome.status, outcome.reason) from error
        except BaseException as error:
            callback(failed_outcome(error))
            raise
        return cancellation

    def _open_files(self, cache: CacheFiles | MissingFiles) -> OpenFiles:
        """Return duplicates of the files to load.

        Raises:
            CacheMissError: there are none, or the device does not cache.
            HalError: INVALID_ARGUMENT, as for `prepare_model_from_cache`.
        """
        if self._cache_unusable:
            raise CacheMissError(self._cache_unusable)
        if isinstance(cache, MissingFiles):
            raise CacheMissError(cache.reason)
        return OpenFiles(cache)

    def check_cache(self, cache: CacheFiles | MissingFiles) -> CacheOutcome:
        """Return whether `prepare_model_from_cache` would find a model in files, with the reason if not.

        Raises:
            HalError: INVALID_ARGUMENT, as for `prepare_model_from_cache`.
        """
        try:
            with closing(self._open_files(cache)) as files:
                return self._cache.check(files)
        except CacheMissError as miss:
            return CacheOutcome(CacheState.MISS, miss.reason)

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[PreparedModel | None],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
        reserve: ReserveMemory = reserve_nothing,
    ) -> Buffer:
        """Allocate an uninitialized driver-managed buffer for roles (hal-surface 8.1).

        If description and roles do not fix its shape, memory is reserved when it receives a value.

        Args:
            desc: dimensions of the buffer.
            prepared_models: the models that the roles refer to; None for models that the client does not have.
            input_roles: uses as an input.
            output_roles: uses as an output.
            reserve: reserves the memory; raises to reject the allocation.

        Raises:
            HalError: INVALID_ARGUMENT (V-ALLOC-01 to 06); GENERAL_FAILURE (V-ALLOC-07); RESOURCE_EXHAUSTED_*: it would
                be larger than a tensor may be, or `reserve` raises.
        """
        return self._buffers.allocate(desc, prepared_models, input_roles, output_roles, reserve)


def _supported_extensions(backends: Sequence[Backend], disabled: Collection[str]) -> tuple[Extension, ...]:
    by_name = {extension.name: extension for backend in reversed(backends) for extension in extensions(backend)}
    return tuple(extension for name, extension in by_name.items() if name not in disabled)
