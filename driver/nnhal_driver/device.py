"""Device (IDevice): capabilities, preparation and allocation."""

import logging
import secrets
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from nnhal.cpu import available_cpus
from nnhal.errors import HalError, general_failure, out_of_memory
from nnhal.types import (
    OMITTED,
    BufferDesc,
    BufferRole,
    CacheOutcome,
    CacheState,
    Capabilities,
    DeviceType,
    ErrorStatus,
    Extension,
    Model,
    NumberOfCacheFiles,
    Placement,
    PreparationWarning,
    PrepareModelConfig,
)
from nnhal.version import __version__
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.compilation.compiler import place_and_compile
from nnhal_driver.compilation.placement import place
from nnhal_driver.execution.buffer import Buffer, ReserveMemory, reserve_nothing
from nnhal_driver.execution.buffer_table import BufferTable
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.extension_types import extension_types
from nnhal_driver.graph import build_graphs, drop_caches
from nnhal_driver.model_cache.cache import CachedModel, ModelCache, SaveTarget
from nnhal_driver.model_cache.errors import CacheMissError
from nnhal_driver.model_cache.files import FILE_COUNTS, CacheFiles, MissingFiles, OpenFiles
from nnhal_driver.operations.shape import MAX_TENSOR_BYTES
from nnhal_driver.performance.store import PerformanceStore
from nnhal_driver.scheduling.admission import ExecutionCounts
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import Deadline
from nnhal_driver.scheduling.latency_history import LatencyHistory
from nnhal_driver.scheduling.scheduler import QueueLimits, Scheduler
from nnhal_driver.validation.model import validate_model
from nnhal_driver.validation.preparation import validate_hints, validate_preparation

_PREPARATION_THREADS = 2

_NO_PLACEMENT = Placement()
_NO_CACHE = CacheOutcome()

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """Result of a preparation, which its callback receives.

    Attributes:
        status: an `ErrorStatus`.
        prepared_model: the model if `status` is NONE, else None.
        reason: the reason of a failure.
        rule: id of the rule that the model breaks, or "".
        placement: the backend of each partition.
        warnings: problems that did not make the preparation fail.
        cache: what the compilation cache did.
        damaged: whether the files to load from are damaged, and useless to any device.
    """

    status: int
    prepared_model: PreparedModel | None = None
    reason: str = ""
    rule: str = ""
    placement: Placement = _NO_PLACEMENT
    warnings: tuple[PreparationWarning, ...] = ()
    cache: CacheOutcome = _NO_CACHE
    damaged: bool = False

    @staticmethod
    def from_error(error: HalError) -> "Outcome":
        """Return the outcome of a failed preparation."""
        return Outcome(error.status, None, error.reason, error.rule)

    @staticmethod
    def cache_miss(reason: str, *, damaged: bool = False) -> "Outcome":
        """Return the outcome of a preparation from the cache that finds no usable model."""
        cache = CacheOutcome(CacheState.MISS, reason)
        return Outcome(ErrorStatus.GENERAL_FAILURE, None, f"cache miss: {reason}", cache=cache, damaged=damaged)

    def with_cache(self, cache: CacheOutcome) -> "Outcome":
        """Return the outcome with a result of the cache, and with a warning if saving failed."""
        warnings = self.warnings
        if cache.state == CacheState.NOT_SAVED:
            warnings = (*warnings, PreparationWarning("cache-not-saved", cache.reason))
        return replace(self, cache=cache, warnings=warnings)


PreparationCallback = Callable[[Outcome], None]
"""IPreparedModelCallback.notify: called exactly once for each preparation, from any thread."""

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
    ) -> None:
        self.name = name
        self._tensor_bytes = tensor_bytes
        self._buffers = BufferTable(tensor_bytes)
        self._performance = performance or PerformanceStore()
        self.backends = tuple(backends)
        key = secrets.token_bytes(32) if cache_key is None else cache_key
        self._merge = merge_partitions
        self._disabled_extensions = frozenset(disabled_extensions)
        # a plan with merged partitions, or with an extension, must not be found by a device that forbids them
        driver = __version__ if merge_partitions else f"{__version__}, no merged partitions"
        driver += "".join(f", no {name}" for name in sorted(self._disabled_extensions))
        self._cache = ModelCache(driver, self.backends, key, tensor_bytes, check_data=check_cached_data)
        self._scheduler = Scheduler(available_cpus(), _PREPARATION_THREADS, queues)

    def close(self) -> None:
        """Finish the queued preparations and end the threads."""
        self._scheduler.close()

    @property
    def execution_counts(self) -> ExecutionCounts:
        """Numbers of executions since the start, by outcome."""
        return self._scheduler.admission.counts

    def get_capabilities(self) -> Capabilities:
        """Return performance figures. The first call for a set of backends measures them, which may take a second."""
        return self._performance.capabilities(self.backends, self.get_version_string())

    def get_number_of_cache_files_needed(self) -> NumberOfCacheFiles:
        """Return one of each kind, for all backends."""
        return FILE_COUNTS

    def get_supported_extensions(self) -> tuple[Extension, ...]:
        """Return the extensions of the backends. Of several with the same name, the first counts."""
        extensions = (extension for backend in reversed(self.backends) for extension in backend.extensions())
        by_name = {extension.name: extension for extension in extensions}
        return tuple(extension for name, extension in by_name.items() if name not in self._disabled_extensions)

    def get_type(self) -> DeviceType:
        """Return the type of the device."""
        return DeviceType.CPU

    def get_version_string(self) -> str:
        """Return the versions of the driver and of its backends."""
        backends = " ".join(f"{backend.id}/{backend.version}" for backend in self.backends)
        return f"nnhal/{__version__} {backends}"

    def get_supported_operations(self, model: Model) -> tuple[list[bool], Placement]:
        """Return for each operation of main whether it is supported, and the placement with the reasons.

        Raises:
            HalError: INVALID_ARGUMENT, with the rule that the model breaks.
        """
        validate_model(model)
        graphs = build_graphs(model, self._disabled_extensions)
        placement = place(graphs, self.backends, merge=self._merge)
        drop_caches(graphs)
        return [bool(operation.backend) for operation in placement.operations if operation.subgraph == 0], placement

    def prepare_model(
        self,
        model: Model,
        callback: PreparationCallback,
        config: PrepareModelConfig = _DEFAULT_CONFIG,
        cache: CacheFiles | None = None,
    ) -> Cancellation:
        """Launch a preparation in the background (hal-surface 8.1).

        The callback is called exactly once, even after a launch error (before it is raised), and possibly before this
        method returns. Its outcome is NONE with the model; GENERAL_FAILURE for an operation that no backend supports;
        MISSED_DEADLINE_*; or the error of the launch.

        Args:
            model: the model.
            callback: receives the outcome.
            config: preference, priority, deadline and hints.
            cache: files to save to. They never make a preparation fail (V-PREP-04): problems become warnings. The
                descriptors may be closed once this method has returned.

        Returns:
            the cancellation of the preparation.

        Raises:
            HalError: INVALID_ARGUMENT: model, preference, priority, deadline or hints are invalid.
        """
        cancellation = Cancellation()
        save_target = SaveTarget(cache)
        try:
            validate_preparation(config.preference, config.priority, config.deadline_ns)
            validate_hints(config.compilation_hints, config.extension_name_to_prefix)
            validate_model(model)
            deadline = Deadline(config.deadline_ns)

            def work() -> None:
                with closing(save_target):
                    outcome = _run_preparation(
                        lambda: self._compile(model, config, deadline, cancellation, save_target)
                    )
                callback(outcome)

            self._scheduler.prepare(config.priority, deadline, work)
        except BaseException as error:
            save_target.close()
            if isinstance(error, HalError):
                callback(Outcome.from_error(error))
            raise
        return cancellation

    def prepare_model_from_cache(
        self,
        callback: PreparationCallback,
        cache: CacheFiles | MissingFiles | PreparedModel,
        deadline_ns: int = OMITTED,
    ) -> Cancellation:
        """Launch a preparation from files that `prepare_model` saved (hal-surface 8.1).

        The callback is called as for `prepare_model`. If the files contain no model for this device, the outcome is
        GENERAL_FAILURE, with the reason in `Outcome.cache`. A model keeps the priority and preference that it was saved
        with.

        Args:
            callback: receives the outcome.
            cache: files to load, whose descriptors may be closed once this method has returned. Or a model that this
                device has loaded from the same files: the callback then gets at once a model that shares its plan.
            deadline_ns: instant of CLOCK_BOOTTIME, or -1.

        Returns:
            the cancellation of the preparation.

        Raises:
            HalError: INVALID_ARGUMENT: the number of files, an access mode, the token or the deadline.
        """
        cancellation = Cancellation()
        try:
            validate_preparation(_DEFAULT_CONFIG.preference, _DEFAULT_CONFIG.priority, deadline_ns)
            deadline = Deadline(deadline_ns)
            if isinstance(cache, MissingFiles):
                callback(Outcome.cache_miss(cache.reason))
                return cancellation
            if isinstance(cache, PreparedModel):
                callback(_run_preparation(lambda: _share(cache, deadline, cancellation)))
                return cancellation
            files = OpenFiles(cache)

            def work() -> None:
                with closing(files):
                    outcome = _run_preparation(lambda: self._load(files, deadline, cancellation))
                callback(outcome)

            try:
                self._scheduler.prepare(_DEFAULT_CONFIG.priority, deadline, work)
            except BaseException:
                files.close()
                raise
        except HalError as error:
            callback(Outcome.from_error(error))
            raise
        return cancellation

    def check_cache(self, cache: CacheFiles | MissingFiles) -> CacheOutcome:
        """Return whether `prepare_model_from_cache` would find a model in files, with the reason if not.

        Raises:
            HalError: INVALID_ARGUMENT, as for `prepare_model_from_cache`.
        """
        if isinstance(cache, MissingFiles):
            return CacheOutcome(CacheState.MISS, cache.reason)
        with closing(OpenFiles(cache)) as files:
            return self._cache.check(files)

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

    def _compile(
        self,
        model: Model,
        config: PrepareModelConfig,
        deadline: Deadline,
        cancellation: Cancellation,
        save_target: SaveTarget,
    ) -> Outcome:
        check = _begin(deadline, cancellation)
        graphs = build_graphs(model, self._disabled_extensions)
        relaxed = model.relax_computation_float32_to_float16
        options = CompileOptions(config.preference, self._tensor_bytes)
        try:
            placement, plan = place_and_compile(
                graphs, self.backends, options, relaxed=relaxed, check=check, merge=self._merge
            )
            cancellation.check()
        except BaseException:
            drop_caches(graphs)
            raise
        cached = CachedModel(plan, placement, config.priority, config.preference, graphs)
        outcome = self._success(cached)
        return outcome.with_cache(save_target.save(self._cache, cached))

    def _load(self, files: OpenFiles, deadline: Deadline, cancellation: Cancellation) -> Outcome:
        check = _begin(deadline, cancellation)
        cached = self._cache.load(files, check)
        outcome = self._success(cached)
        cancellation.check()
        return outcome.with_cache(CacheOutcome(CacheState.HIT))

    def _success(self, cached: CachedModel) -> Outcome:
        main = cached.plan.graph
        prepared = PreparedModel(
            tuple(main.operands[i] for i in main.subgraph.input_indexes),
            tuple(main.operands[i] for i in main.subgraph.output_indexes),
            cached.placement,
            cached.priority,
            cached.plan,
            self._scheduler,
            self._buffers,
            extension_types=extension_types(main.extensions, self.get_supported_extensions()),
        )
        weakref.finalize(cached.plan, drop_caches, cached.graphs)  # several prepared models may share it
        return Outcome(ErrorStatus.NONE, prepared, placement=cached.placement)


def _share(prepared: PreparedModel, deadline: Deadline, cancellation: Cancellation) -> Outcome:
    """Return the outcome of a preparation from a loaded model.

    Each client gets an object of its own, because roles of buffers refer to it.
    """
    _begin(deadline, cancellation)
    shared = replace(prepared, latencies=LatencyHistory())
    return Outcome(ErrorStatus.NONE, shared, placement=shared.placement, cache=CacheOutcome(CacheState.HIT))


def _begin(deadline: Deadline, cancellation: Cancellation) -> Callable[[], None]:
    """Begin a preparation. Return the check to call between its steps.

    Raises:
        HalError: MISSED_DEADLINE_PERSISTENT: the deadline has passed; or the preparation was cancelled.
    """
    deadline.check_on_arrival("the preparation")
    cancellation.check()

    def check() -> None:
        deadline.check("the preparation")
        cancellation.check()

    return check


def _run_preparation(prepare: Callable[[], Outcome]) -> Outcome:
    """Run a preparation and return its outcome, also if it fails."""
    try:
        return prepare()
    except CacheMissError as miss:
        return Outcome.cache_miss(miss.reason, damaged=miss.damaged)
    except HalError as error:
        return Outcome.from_error(error)
    except MemoryError as error:
        return Outcome.from_error(out_of_memory("the preparation", error))
    except Exception as error:
        _log.exception("a preparation failed")
        return Outcome.from_error(general_failure(f"the driver failed: {type(error).__name__}: {error}"))
