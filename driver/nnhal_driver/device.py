"""Device (IDevice): capabilities, preparation and allocation."""

import secrets
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TypeVar

from nnhal.cpu import available_cpus
from nnhal.types import (
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
    Priority,
)
from nnhal.version import __version__
from nnhal_driver.backends import lifetime
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.answers import identity_fault, offer_allocator
from nnhal_driver.backends.boundary.isolation import isolate
from nnhal_driver.backends.engine_process import HostedBackend
from nnhal_driver.backends.identity import full_version
from nnhal_driver.compilation.placement import place
from nnhal_driver.device_options import DeviceHost, DeviceOptions
from nnhal_driver.execution.buffer import Buffer, ReserveMemory, reserve_nothing
from nnhal_driver.execution.buffer_table import BufferTable
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.graph import build_graphs, drop_caches
from nnhal_driver.memory_estimate import model_bytes, saved_bytes
from nnhal_driver.model_cache.cache import ModelCache, SaveTarget
from nnhal_driver.model_cache.environment import BuildEnvironment
from nnhal_driver.model_cache.files import (
    FILE_COUNTS,
    NO_FILES,
    CacheFiles,
    CacheMissError,
    MissingFiles,
    OpenFiles,
)
from nnhal_driver.preparation.launch import (
    DeviceCall,
    GivenModel,
    LaunchOptions,
    ModelReader,
    PreparationLaunch,
)
from nnhal_driver.preparation.model_preparer import (
    CompileJob,
    DeviceParts,
    LoadJob,
    ModelMemory,
    ModelPreparer,
    PreparationWork,
    share_model,
)
from nnhal_driver.preparation.outcome import PreparationCallback, reported_launch
from nnhal_driver.preparation.probing import PROBES, ProbeWork
from nnhal_driver.quarantine import Probe
from nnhal_driver.scheduling.paced_check import CurrentCheck, call_check, pause_collector
from nnhal_driver.scheduling.preparation import Check, PreparationTask
from nnhal_driver.scheduling.scheduler import Scheduler
from nnhal_driver.scheduling.ticket import AdmissionRequest
from nnhal_driver.validation.model import validate_model
from nnhal_driver.validation.preparation import validate_hints, validate_preparation

_PREPARATION_THREADS = 2
_LARGE_MODEL = 10_000
"""Operands and arguments of the largest model that is analysed without a slot. That takes some tens of milliseconds."""

_DEFAULT_OPTIONS = DeviceOptions()

F = TypeVar("F", SaveTarget, OpenFiles)


class Device:
    """Ordered list of backends, with the threads that serve them. Thread safe. Close it when done.

    Args:
        backends: in order of preference.
        host: the parts of the process that the device shares with others; by default parts of its own.

    Attributes:
        allocator_refusals: why a backend does not use the allocator, or "", by id; empty without an allocator.

    Raises:
        ValueError: the id or the version of a backend is invalid.
    """

    def __init__(
        self,
        name: str,
        backends: Sequence[Backend],
        options: DeviceOptions = _DEFAULT_OPTIONS,
        host: DeviceHost | None = None,
    ) -> None:
        self.name = name
        self.backends = tuple(backends)
        self._type = options.type or next((backend.device_type for backend in self.backends), DeviceType.CPU)
        self._options = options
        self._host = host = host or DeviceHost()
        for backend in self.backends:
            if fault := identity_fault(backend):
                raise ValueError(f"a {type(backend).__name__} cannot be a backend of {name}: {fault}")
            isolate(backend, options.backend_timeout_s)
            if isinstance(backend, HostedBackend):
                backend.hosting = host.engines
        if host.activities is not None:
            host.activities.add_backends([backend.id for backend in self.backends])
        self._cache = _create_cache(self.backends, options)
        self._buffers = BufferTable(options.tensor_bytes, host.buffers)
        self._scheduler = Scheduler(available_cpus(), _PREPARATION_THREADS, options.queues)
        self._probes = Scheduler(1, PROBES, options.queues, per_owner=1) if host.prober is not None else None
        self._parts = DeviceParts(name, self.backends, options, host, self._cache, self._scheduler, self._buffers)
        self._preparer = ModelPreparer(self._parts)
        self.allocator_refusals = {} if host.allocator is None else offer_allocator(self.backends, host.allocator)
        lifetime.acquire(self.backends)
        self._close_backends = weakref.finalize(self, lifetime.release, self.backends)
        self._close_backends.atexit = False

    def close(self) -> None:
        """Finish the queued preparations, end the threads, and close the backends that no prepared model uses."""
        if self._probes is not None:
            self._probes.close()  # first: they start preparations
        self._scheduler.close()
        self._close_backends()

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
        """Number of preparations, analyses and probes that wait for a slot."""
        probes = 0 if self._probes is None else self._probes.preparations.waiting
        return self._scheduler.preparations.waiting + self._scheduler.analyses.waiting + probes

    def get_capabilities(self) -> Capabilities:
        """Return performance figures. The first call for a set of backends measures them, which may take a second."""
        return self._host.performance.capabilities(self.backends, self.get_version_string())

    def get_number_of_cache_files_needed(self) -> NumberOfCacheFiles:
        """Return one of each kind, for all backends; none if the device does not cache."""
        return NO_FILES if self._options.cache.unusable else FILE_COUNTS

    @property
    def build_environment(self) -> BuildEnvironment:
        """The environment that a saved model depends on: versions, backends and CPU."""
        return self._cache.environment

    def get_supported_extensions(self) -> tuple[Extension, ...]:
        """Return the well-formed extensions of the backends. Of several with the same name, the first counts."""
        return self._parts.supported_extensions()

    def get_type(self) -> DeviceType:
        """Return the type of the device: the one that its operator chose, or that of its first backend."""
        return self._type

    def get_version_string(self) -> str:
        """Return the versions of the driver and of its backends."""
        backends = " ".join(f"{backend.id}/{full_version(backend)}" for backend in self.backends)
        return f"nnhal/{__version__} {backends}"

    def get_supported_operations(
        self, reader: ModelReader, call: DeviceCall | None = None
    ) -> tuple[list[bool], Placement]:
        """Return for each operation of main whether it is supported, and the placement with the reasons.

        `call.reserve` gets the memory that the analysis needs.

        Raises:
            HalError: INVALID_ARGUMENT, with the rule that the model breaks; MISSED_DEADLINE_*;
                RESOURCE_EXHAUSTED_TRANSIENT: the queue is full; GENERAL_FAILURE: cancelled; or what the reader or
                `reserve` raises.
        """
        call = call or DeviceCall()
        with self._admit_analysis(reader.size, call) as check:
            # the collector is paused, so the model, which nothing refers to afterwards, ends before it starts again
            return self._place(reader.read(check).model, call.reserve, check)

    def _place(self, model: Model, reserve: ReserveMemory, check: Check) -> tuple[list[bool], Placement]:
        validate_model(model, check)
        reservation = reserve(model_bytes(model))
        graphs = build_graphs(model, self._options.disabled_extensions, check)
        try:
            placement = place(graphs, self.backends, merge=self._options.merge_partitions)
        finally:
            drop_caches(graphs)
        del reservation
        return [bool(operation.backend) for operation in placement.operations if operation.subgraph == 0], placement

    def prepare_model(self, launch: PreparationLaunch) -> None:
        """Launch a preparation in the background (hal-surface 8.1).

        The model is read and analysed on the calling thread: the client may write to its memory once this method has
        returned. The callback is called exactly once, even after a launch error (before it is raised), and possibly
        before this method returns. Its outcome is NONE with the model; GENERAL_FAILURE for an operation that no backend
        supports; MISSED_DEADLINE_*; or the error of the launch. A missed deadline is reported when it passes, TRANSIENT
        if time was lost in a queue, else PERSISTENT. It is never an error of the launch (PREP-03).

        Raises:
            HalError: INVALID_ARGUMENT: model, preference, priority, deadline or hints are invalid;
                RESOURCE_EXHAUSTED_TRANSIENT: there is not enough memory, or a queue is full; GENERAL_FAILURE: the
                launch is cancelled; or what the reader or `reserve` raises.
        """
        call, options = launch.call, launch.options
        with reported_launch(launch.callback) as notify:
            validate_preparation(options.preference, options.priority, call.deadline.at_ns)
            validate_hints(options.hints, options.extensions)
            with self._admit_analysis(launch.reader.size, call) as check:
                given = launch.reader.read(check)
                with _closed_on_error(SaveTarget(given.cache, self._options.cache.unusable, given.digest)) as target:
                    job = self._analyse(given, call, options, target, check)
                    work = PreparationWork(partial(self._preparer.compile, job), notify, target.close)
                    self._start(work, options.priority, call, job.probe)

    @contextmanager
    def _admit_analysis(self, size: int, call: DeviceCall) -> Iterator[Check]:
        """Yield the check for the analysis of a model on the calling thread. Large models take turns."""
        check = call_check(call.deadline, call.cancellation)
        if size <= _LARGE_MODEL:
            yield check
            return
        request = AdmissionRequest(Priority.MEDIUM, call.deadline, call.owner)
        with self._scheduler.analyses.admit(request, call.cancellation), pause_collector():
            yield check

    def _analyse(
        self, given: GivenModel, call: DeviceCall, options: LaunchOptions, target: SaveTarget, check: Check
    ) -> CompileJob:
        """Validate a model, reserve memory for it and copy what the client may change."""
        model = given.model
        validate_model(model, check)
        size = model_bytes(model)
        memory = ModelMemory(call.reserve, call.reserve(size), size)
        current = CurrentCheck()
        with current.stage(check):
            graphs = build_graphs(model, self._options.disabled_extensions, current)
        prober = self._host.prober
        probe = prober.begin(self.name, model, given.digest) if prober is not None else None
        relaxed = model.relax_computation_float32_to_float16
        return CompileJob(graphs, current, relaxed, given.digest, memory, target, probe, options, call)

    def _start(self, work: PreparationWork, priority: int, call: DeviceCall, probe: Probe | None = None) -> None:
        """Queue the work of a launch for a preparation thread, after the probe of its model."""
        request = AdmissionRequest(priority, call.deadline, call.owner)
        start = partial(self._scheduler.prepare, PreparationTask(request, call.cancellation, work, call.times))
        if self._probes is None or probe is None:
            start()
        else:
            self._probes.prepare(PreparationTask(request, call.cancellation, ProbeWork(probe, work, start)))

    def prepare_model_from_cache(
        self,
        callback: PreparationCallback,
        cache: CacheFiles | MissingFiles,
        call: DeviceCall | None = None,
        preloaded: PreparedModel | None = None,
    ) -> None:
        """Launch a preparation from files that `prepare_model` saved (hal-surface 8.1).

        The callback is called as for `prepare_model`. The launch checks the model cache. The digest of the data cache
        is checked in the background; if it is wrong, the outcome is GENERAL_FAILURE. In both cases the reason is in
        `Outcome.cache`. A model keeps the priority and preference that it was saved with. The descriptors of the files
        may be closed once this method has returned.

        If the files have not changed since this device loaded `preloaded` from them, the callback gets at once a model
        that shares its plan.

        Raises:
            HalError: INVALID_ARGUMENT: the number of files, an access mode, the token or the deadline; GENERAL_FAILURE:
                the device does not cache, or the files contain no model for it; or what `reserve` raises.
        """
        call, options = call or DeviceCall(), LaunchOptions()
        with reported_launch(callback) as notify:
            validate_preparation(options.preference, options.priority, call.deadline.at_ns)
            with _closed_on_error(self._open_files(cache)) as files:
                size = saved_bytes(files)
                memory = ModelMemory(call.reserve, call.reserve(size), size)
                verified = self._cache.verify(files)
                if preloaded is not None and preloaded.loaded_from == verified.identity:
                    outcome = share_model(preloaded, call)
                    files.close()
                    notify(outcome)
                    return
                work = PreparationWork(
                    partial(self._preparer.load, LoadJob(verified, memory, call)), notify, files.close
                )
                self._start(work, options.priority, call)

    def _open_files(self, cache: CacheFiles | MissingFiles) -> OpenFiles:
        """Return duplicates of the files to load. Raises CacheMissError if there are none, or no cache."""
        if unusable := self._options.cache.unusable:
            raise CacheMissError(unusable)
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

        If description and roles do not fix its shape, memory is reserved when it receives a value. A prepared model
        that the client does not have is None. `reserve` raises to reject the allocation.

        Raises:
            HalError: INVALID_ARGUMENT (V-ALLOC-01 to 06); GENERAL_FAILURE (V-ALLOC-07); RESOURCE_EXHAUSTED_*: it would
                be larger than a tensor may be, or `reserve` raises.
        """
        return self._buffers.allocate(desc, prepared_models, input_roles, output_roles, reserve)


def _create_cache(backends: Sequence[Backend], options: DeviceOptions) -> ModelCache:
    # a plan with merged partitions, or with an extension, must not be found by a device that forbids them
    driver = __version__ if options.merge_partitions else f"{__version__}, no merged partitions"
    driver += "".join(f", no {name}" for name in sorted(options.disabled_extensions))
    key = secrets.token_bytes(32) if options.cache.key is None else options.cache.key
    return ModelCache(driver, backends, key, options.tensor_bytes, check_data=options.cache.check_data)


@contextmanager
def _closed_on_error(files: F) -> Iterator[F]:
    """Close files if the body raises. Otherwise the body has passed them on."""
    try:
        yield files
    except BaseException:
        files.close()
        raise
