"""Device: the methods of IDevice over canonical types."""

import logging
import os
import secrets
import weakref
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from driver import placement as placing
from driver.backends.api import Backend, CompileOptions
from driver.buffer import Buffer, Buffers, Reserve, unaccounted
from driver.caching.files import NEEDED, CacheFiles, Missing, OpenFiles
from driver.caching.keeper import Keeper, Kept, Saving
from driver.caching.miss import CacheMissError
from driver.cancellation import Cancellation
from driver.compilation import place_and_compile
from driver.deadline import Deadline
from driver.extension_types import extension_types
from driver.gate import Counts
from driver.graph import forget, graphs
from driver.operations.shape import MAX_TENSOR_BYTES
from driver.performance import Performance
from driver.prepared_model import PreparedModel
from driver.run_times import RunTimes
from driver.scheduler import Queues, Scheduler
from driver.validation.model import validate_model
from driver.validation.preparation import validate_hints, validate_preparation
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

DRIVER_VERSION = "0.1.0"

_PREPARING_THREADS = 2

_NOWHERE = Placement()
_NO_CACHE = CacheOutcome()

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What a preparation's callback is told. `prepared_model` is set exactly when `status` is NONE.

    Attributes:
        warnings: what went wrong without making the preparation fail.
        cache: what the compilation cache did.
        damaged: the files that it was to be loaded from are of no use to anybody.
    """

    status: int
    prepared_model: PreparedModel | None = None
    reason: str = ""
    rule: str = ""
    placement: Placement = _NOWHERE
    warnings: tuple[PreparationWarning, ...] = ()
    cache: CacheOutcome = _NO_CACHE
    damaged: bool = False

    @staticmethod
    def of(error: HalError) -> "Outcome":
        """The outcome of a failed preparation."""
        return Outcome(error.status, None, error.reason, error.rule)

    @staticmethod
    def miss(reason: str, *, damaged: bool = False) -> "Outcome":
        """The outcome of a preparation from the cache that finds nothing it can use."""
        cache = CacheOutcome(CacheState.MISS, reason)
        return Outcome(ErrorStatus.GENERAL_FAILURE, None, f"cache miss: {reason}", cache=cache, damaged=damaged)

    def with_cache(self, cache: CacheOutcome) -> "Outcome":
        """The same, with what the cache did; a warning where nothing was saved though it should be."""
        warnings = self.warnings
        if cache.state == CacheState.NOT_SAVED:
            warnings = (*warnings, PreparationWarning("cache-not-saved", cache.reason))
        return replace(self, cache=cache, warnings=warnings)


Callback = Callable[[Outcome], None]
"""IPreparedModelCallback.notify: called exactly once for each preparation, from any thread."""

_DEFAULT_CONFIG = PrepareModelConfig()
_QUEUES = Queues(preparations=256, executions=1024)


class Device:
    """One device: an ordered list of backends and the threads that serve it. Thread safe. Close it when done.

    Args:
        tensor_bytes: the most that one tensor may have in an execution.
        cache_key: seals cache files; secret. Without one a key of its own: what it saves only this object loads.
        check_cached_data: whether the digest of a data cache must be right; without that, a changed one may give wrong
            answers.
        performance: measures and keeps the device's figures; devices of one process share it.
    """

    def __init__(
        self,
        name: str,
        backends: Sequence[Backend],
        queues: Queues = _QUEUES,
        tensor_bytes: int = MAX_TENSOR_BYTES,
        cache_key: bytes | None = None,
        check_cached_data: bool = True,
        performance: Performance | None = None,
    ) -> None:
        self.name = name
        self._tensor_bytes = tensor_bytes
        self._buffers = Buffers(tensor_bytes)
        self._performance = performance or Performance()
        self.backends = tuple(backends)
        key = secrets.token_bytes(32) if cache_key is None else cache_key
        self._keeper = Keeper(DRIVER_VERSION, self.backends, key, tensor_bytes, check_data=check_cached_data)
        self._scheduler = Scheduler(os.cpu_count() or 1, _PREPARING_THREADS, queues)

    def close(self) -> None:
        """Finishes the preparations that are queued and ends the device's threads."""
        self._scheduler.close()

    @property
    def execution_counts(self) -> Counts:
        """What became of executions since the start; `wasted` is work that was done in vain."""
        return self._scheduler.gate.counts

    def get_capabilities(self) -> Capabilities:
        """How fast the device is. Measured at the first call for its backends, which may take a second."""
        return self._performance.capabilities(self.backends, self.get_version_string())

    def get_number_of_cache_files_needed(self) -> NumberOfCacheFiles:
        """One of each kind, whatever the backends."""
        return NEEDED

    def get_supported_extensions(self) -> tuple[Extension, ...]:
        """Those of its backends; the first that has a name says what it holds."""
        extensions = {one.name: one for backend in reversed(self.backends) for one in backend.extensions()}
        return tuple(extensions.values())

    def get_type(self) -> DeviceType:
        """What the device is."""
        return DeviceType.CPU

    def get_version_string(self) -> str:
        """Differs between any two releases of the driver or of one of its backends."""
        backends = " ".join(f"{backend.id}/{backend.version}" for backend in self.backends)
        return f"nnhal/{DRIVER_VERSION} {backends}"

    def get_supported_operations(self, model: Model) -> tuple[list[bool], Placement]:
        """For each operation of main whether it would run; and where, and why not.

        Raises:
            HalError: INVALID_ARGUMENT, with the rule that the model breaks.
        """
        validate_model(model)
        parts = graphs(model)
        placement = placing.place(parts, self.backends)
        forget(parts)
        return [bool(operation.backend) for operation in placement.operations if operation.subgraph == 0], placement

    def prepare_model(
        self,
        model: Model,
        callback: Callback,
        config: PrepareModelConfig = _DEFAULT_CONFIG,
        cache: CacheFiles | None = None,
    ) -> Cancellation:
        """Launches a preparation in the background (hal-surface 8.1).

        The callback is called exactly once, also on a launch error (before it is raised), and may be called before
        this returns. What it gets: NONE with the model; GENERAL_FAILURE for an operation that no backend takes;
        MISSED_DEADLINE_*; or the error of the launch.

        Args:
            cache: where to save. It never makes a preparation fail (V-PREP-04): what is wrong with it is a warning. The
                descriptors may be closed once this has returned.

        Returns:
            what abandons the work.

        Raises:
            HalError: INVALID_ARGUMENT: model, preference, priority, deadline or hints are invalid.
        """
        cancellation = Cancellation()
        saving = Saving(cache)
        try:
            validate_preparation(config.preference, config.priority, config.deadline_ns)
            validate_hints(config.compilation_hints, config.extension_name_to_prefix)
            validate_model(model)
            deadline = Deadline(config.deadline_ns)

            def work() -> None:
                with closing(saving):
                    outcome = _answer(lambda: self._compile(model, config, deadline, cancellation, saving))
                callback(outcome)

            self._scheduler.prepare(config.priority, deadline, work)
        except BaseException as error:
            saving.close()
            if isinstance(error, HalError):
                callback(Outcome.of(error))
            raise
        return cancellation

    def prepare_model_from_cache(
        self, callback: Callback, cache: CacheFiles | Missing | PreparedModel, deadline_ns: int = OMITTED
    ) -> Cancellation:
        """Launches a preparation from files that `prepare_model` saved (hal-surface 8.1).

        The callback is called as by `prepare_model`. Where the files hold no model for this device it gets
        GENERAL_FAILURE, and in `Outcome.cache` why. A model keeps the priority and preference that it was saved with.

        Args:
            cache: the descriptors may be closed once this has returned. Or what this device has loaded from such files
                before: the callback then gets a prepared model of its own that shares the plan with it, at once.
            deadline_ns: instant of CLOCK_BOOTTIME, or -1.

        Returns:
            what abandons the work.

        Raises:
            HalError: INVALID_ARGUMENT: the number of files, an access mode, the token or the deadline.
        """
        cancellation = Cancellation()
        try:
            validate_preparation(_DEFAULT_CONFIG.preference, _DEFAULT_CONFIG.priority, deadline_ns)
            deadline = Deadline(deadline_ns)
            if isinstance(cache, Missing):
                callback(Outcome.miss(cache.reason))
                return cancellation
            if isinstance(cache, PreparedModel):
                callback(_answer(lambda: _share(cache, deadline, cancellation)))
                return cancellation
            files = OpenFiles(cache)

            def work() -> None:
                with closing(files):
                    outcome = _answer(lambda: self._load(files, deadline, cancellation))
                callback(outcome)

            try:
                self._scheduler.prepare(_DEFAULT_CONFIG.priority, deadline, work)
            except BaseException:
                files.close()
                raise
        except HalError as error:
            callback(Outcome.of(error))
            raise
        return cancellation

    def check_cache(self, cache: CacheFiles | Missing) -> CacheOutcome:
        """Whether `prepare_model_from_cache` would find a model in these files, and if not why not.

        Raises:
            HalError: INVALID_ARGUMENT, as there.
        """
        if isinstance(cache, Missing):
            return CacheOutcome(CacheState.MISS, cache.reason)
        with closing(OpenFiles(cache)) as files:
            return self._keeper.check(files)

    def allocate(
        self,
        desc: BufferDesc,
        prepared_models: Sequence[PreparedModel | None],
        input_roles: Sequence[BufferRole],
        output_roles: Sequence[BufferRole],
        reserve: Reserve = unaccounted,
    ) -> Buffer:
        """Makes a driver-managed buffer for the given roles (hal-surface 8.1). It is uninitialised.

        Where desc and roles leave its shape open, memory is accounted for when a value comes.

        Args:
            reserve: accounts for the memory that the buffer holds; it refuses by raising.

        Raises:
            HalError: INVALID_ARGUMENT (V-ALLOC-01 to 06); GENERAL_FAILURE (V-ALLOC-07); RESOURCE_EXHAUSTED_*: it would
                be larger than a tensor may be, or `reserve` refuses.
        """
        return self._buffers.allocate(desc, prepared_models, input_roles, output_roles, reserve)

    def _compile(
        self,
        model: Model,
        config: PrepareModelConfig,
        deadline: Deadline,
        cancellation: Cancellation,
        saving: Saving,
    ) -> Outcome:
        check = _checked(deadline, cancellation)
        parts = graphs(model)
        relaxed = model.relax_computation_float32_to_float16
        options = CompileOptions(config.preference, self._tensor_bytes)
        try:
            placement, plan = place_and_compile(parts, self.backends, options, relaxed=relaxed, check=check)
            cancellation.check()
        except BaseException:
            forget(parts)
            raise
        kept = Kept(plan, placement, config.priority, config.preference, parts)
        outcome = self._outcome(kept)
        return outcome.with_cache(saving.save(self._keeper, kept))

    def _load(self, files: OpenFiles, deadline: Deadline, cancellation: Cancellation) -> Outcome:
        check = _checked(deadline, cancellation)
        kept = self._keeper.load(files, check)
        outcome = self._outcome(kept)
        cancellation.check()
        return outcome.with_cache(CacheOutcome(CacheState.HIT))

    def _outcome(self, kept: Kept) -> Outcome:
        main = kept.plan.graph
        prepared = PreparedModel(
            tuple(main.operands[i] for i in main.subgraph.input_indexes),
            tuple(main.operands[i] for i in main.subgraph.output_indexes),
            kept.placement,
            kept.priority,
            kept.plan,
            self._scheduler,
            self._buffers,
            extension_types=extension_types(main.extensions, self.get_supported_extensions()),
        )
        weakref.finalize(kept.plan, forget, kept.graphs)  # prepared models may share it
        return Outcome(ErrorStatus.NONE, prepared, placement=kept.placement)


def _share(prepared: PreparedModel, deadline: Deadline, cancellation: Cancellation) -> Outcome:
    """The outcome of a preparation from what has been prepared.

    Each client gets an object of its own: the roles of buffers name it, and are nobody else's business.
    """
    _checked(deadline, cancellation)
    shared = replace(prepared, times=RunTimes())
    return Outcome(ErrorStatus.NONE, shared, placement=shared.placement, cache=CacheOutcome(CacheState.HIT))


def _checked(deadline: Deadline, cancellation: Cancellation) -> Callable[[], None]:
    """What a preparation calls between its steps; the first call is made here.

    Raises:
        HalError: MISSED_DEADLINE_PERSISTENT: it is late already; or it was cancelled.
    """
    deadline.check_on_arrival("the preparation")
    cancellation.check()

    def check() -> None:
        deadline.check("the preparation")
        cancellation.check()

    return check


def _answer(prepare: Callable[[], Outcome]) -> Outcome:
    """The outcome of a preparation, whatever becomes of it."""
    try:
        return prepare()
    except CacheMissError as miss:
        return Outcome.miss(miss.reason, damaged=miss.damaged)
    except HalError as error:
        return Outcome.of(error)
    except MemoryError as error:
        return Outcome.of(out_of_memory("the preparation", error))
    except Exception as error:
        _log.exception("a preparation failed")
        return Outcome.of(general_failure(f"the driver failed: {type(error).__name__}: {error}"))
