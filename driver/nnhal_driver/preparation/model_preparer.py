"""Preparation of models by compilation, from cache files, or from a loaded model."""

import weakref
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from nnhal.errors import general_failure
from nnhal.types import CacheOutcome, CacheState, ErrorStatus, Extension, PreparationWarning
from nnhal_driver.activity import Stage, subject_of
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.backends.boundary.answers import extensions
from nnhal_driver.backends.boundary.isolation import refusals
from nnhal_driver.compilation.compiler import place_and_compile
from nnhal_driver.compilation.cost import estimate_duration_ns
from nnhal_driver.compilation.networks import NetworkLoad
from nnhal_driver.device_options import DeviceHost, DeviceOptions
from nnhal_driver.execution.buffer import ReserveMemory
from nnhal_driver.execution.buffer_table import BufferTable
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.profiling_contexts import ProfilingContexts
from nnhal_driver.extension_types import extension_types
from nnhal_driver.graph import Graph, drop_caches
from nnhal_driver.model_cache.cache import CachedModel, ModelCache, SaveTarget, VerifiedFiles
from nnhal_driver.model_cache.files import CacheMissError
from nnhal_driver.preparation.launch import DeviceCall, LaunchOptions
from nnhal_driver.preparation.outcome import Outcome, PreparationCallback, failed_outcome
from nnhal_driver.quarantine import Probe, Verdict
from nnhal_driver.scheduling.latency_history import LatencyHistory
from nnhal_driver.scheduling.paced_check import CurrentCheck, PacedCheck, pause_collector
from nnhal_driver.scheduling.preparation import Check
from nnhal_driver.scheduling.scheduler import Scheduler

_LARGE_MODEL = 2000
"""Number of operations from which on the collection of garbage is worth a pause."""


@dataclass(frozen=True, slots=True)
class DeviceParts:
    """Parts of a device that its preparations use.

    Attributes:
        backends: its backends, in order of preference.
    """

    name: str
    backends: Sequence[Backend]
    options: DeviceOptions
    host: DeviceHost
    cache: ModelCache
    scheduler: Scheduler
    buffers: BufferTable

    def supported_extensions(self) -> tuple[Extension, ...]:
        """Return the well-formed extensions of the backends. Of several with the same name, the first counts."""
        by_name = {
            extension.name: extension for backend in reversed(self.backends) for extension in extensions(backend)
        }
        return tuple(found for name, found in by_name.items() if name not in self.options.disabled_extensions)


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """Memory of one model, as estimated.

    Attributes:
        reservation: of the model; that of its engine is apart.
    """

    reserve: ReserveMemory
    reservation: object
    size: int


@dataclass(frozen=True, slots=True)
class CompileJob:
    """Preparation from a model that a launch has analysed.

    Attributes:
        graphs: the graphs of the model, which are checked by `check`.
        relaxed: whether it may compute with less precision.
        probe: prepares the model in another process first, before `compile`.
    """

    graphs: Sequence[Graph]
    check: CurrentCheck
    relaxed: bool
    digest: bytes
    memory: ModelMemory
    save_target: SaveTarget
    probe: Probe | None
    options: LaunchOptions
    call: DeviceCall


@dataclass(frozen=True, slots=True)
class LoadJob:
    """Preparation from files that a launch has verified."""

    verified: VerifiedFiles
    memory: ModelMemory
    call: DeviceCall


@dataclass(frozen=True, slots=True)
class PreparationWork:
    """Steps of one preparation: see `scheduling.preparation.Work`."""

    run: Callable[[Check], Outcome]
    notify: PreparationCallback
    close: Callable[[], None]

    def fail(self, error: BaseException) -> Outcome:
        """Return the outcome of a preparation that ends with an error."""
        return failed_outcome(error)


class ModelPreparer:
    """Does the work of the preparations of one device. Thread safe."""

    def __init__(self, device: DeviceParts) -> None:
        self._device = device
        self._activities = device.host.activities
        self._profiling = ProfilingContexts(device.backends)

    def compile(self, job: CompileJob, check: Check) -> Outcome:
        """Return the outcome of a preparation from a model. `check` raises if the work must end.

        Raises:
            HalError: GENERAL_FAILURE: the model is in quarantine, or no backend supports an operation; or what a
                backend or the check raises.
        """
        with self._recording(Stage.PREPARING, job.digest, job.call), job.check.stage(PacedCheck(check)):
            return self._compile(job, check)

    def load(self, job: LoadJob, check: Check) -> Outcome:
        """Return the outcome of a preparation from files. The arguments are those of `compile`.

        Raises:
            HalError: GENERAL_FAILURE: the model is in quarantine; or what a backend or the check raises.
            CacheMissError: the files contain no model for the device, or one for a backend in quarantine.
        """
        verified, memory = job.verified, job.memory
        with self._recording(Stage.LOADING, verified.digest, job.call):
            check()
            verdict = self._verdict(verified.digest)
            if verdict.excluded:
                raise CacheMissError(_exclusion_text(verdict))
            with NetworkLoad(self._device.backends) as network:
                cached = self._device.cache.load(verified, check, network.number, memory.reserve)
                network.loaded(cached.plan)
            outcome = self._success(cached, job, verified.identity)
            check()
            return outcome.with_cache(CacheOutcome(CacheState.HIT))

    def _recording(self, stage: Stage, digest: bytes, call: DeviceCall) -> AbstractContextManager[None]:
        """Return a context that records a preparation in the table of activities."""
        if self._activities is None:
            return nullcontext()
        return self._activities.record(stage, subject_of(digest, call.client), call.deadline.at_ns, call.cancellation)

    def _verdict(self, digest: bytes) -> Verdict:
        """Return the verdict on a model, or raise GENERAL_FAILURE if it is in quarantine."""
        verdict = self._device.host.quarantine.verdict(digest)
        if verdict.refusal:
            raise general_failure(verdict.refusal)
        return verdict

    def _compile(self, job: CompileJob, check: Check) -> Outcome:
        check()
        verdict = self._verdict(job.digest)
        graphs, options, memory = job.graphs, job.options, job.memory
        backends = [backend for backend in self._device.backends if backend.id not in verdict.excluded]
        if not backends:
            raise general_failure(f"no backend is left: {verdict.reason}")
        earlier = list(map(refusals, backends))
        is_large = sum(len(graph.subgraph.operations) for graph in graphs) > _LARGE_MODEL
        with NetworkLoad(backends) as network, pause_collector() if is_large else nullcontext():
            limits = self._device.options
            compile_options = CompileOptions(
                options.preference, limits.tensor_bytes, network.number, check=check, reserve=memory.reserve
            )
            try:
                placement, plan = place_and_compile(
                    graphs, backends, compile_options, relaxed=job.relaxed, merge=limits.merge_partitions
                )
                check()
            except BaseException:
                drop_caches(graphs)
                raise
            network.loaded(plan)
        cached = CachedModel(plan, placement, options.priority, options.preference, graphs, job.digest)
        outcome = self._success(cached, job)
        reasons = {"backend-quarantined": _exclusion_text(verdict)} if verdict.excluded else {}
        if hung := [now[1] for now, before in zip(map(refusals, backends), earlier, strict=True) if now != before]:
            reasons["backend-hangs"] = "; ".join(hung)
        if not reasons:
            return outcome.with_cache(job.save_target.save(self._device.cache, cached))
        warnings = (PreparationWarning(code, reason) for code, reason in reasons.items())
        outcome = replace(outcome, warnings=(*outcome.warnings, *warnings))
        return outcome.with_cache(job.save_target.skip("; ".join(reasons.values())))

    def _success(self, cached: CachedModel, job: CompileJob | LoadJob, loaded_from: Hashable = None) -> Outcome:
        main, memory = cached.plan.graph, job.memory
        prepared = PreparedModel(
            tuple(main.operands[i] for i in main.subgraph.input_indexes),
            tuple(main.operands[i] for i in main.subgraph.output_indexes),
            cached.placement,
            cached.priority,
            cached.plan,
            self._device.scheduler,
            self._device.buffers,
            profiling=self._profiling,
            extension_types=extension_types(main.extensions, self._device.supported_extensions()),
            loaded_from=loaded_from,
            digest=cached.digest,
            subject=subject_of(cached.digest, job.call.client),
            device=self._device.name,
            reserve=memory.reserve,
            size=memory.size,
            activities=self._activities,
            estimated_ns=estimate_duration_ns(cached.graphs) if self._activities is not None else 0,
        )
        weakref.finalize(cached.plan, _free_model, cached.graphs, memory)  # several prepared models may share it
        return Outcome(ErrorStatus.NONE, prepared, placement=cached.placement)


def share_model(prepared: PreparedModel, call: DeviceCall) -> Outcome:
    """Return the outcome of a preparation from a loaded model.

    Each client gets an object of its own, because roles of buffers refer to it, and `reserve` is that of the client.

    Raises:
        HalError: MISSED_DEADLINE_PERSISTENT.
    """
    call.deadline.check_on_arrival("the preparation")
    subject = subject_of(prepared.digest, call.client)
    shared = replace(prepared, latencies=LatencyHistory(), reserve=call.reserve, subject=subject)
    return Outcome(ErrorStatus.NONE, shared, placement=shared.placement, cache=CacheOutcome(CacheState.HIT))


def _free_model(graphs: Sequence[Graph], memory: ModelMemory) -> None:
    """Free what refers back to the graphs of a model. The reservation of its memory ends with the call."""
    drop_caches(graphs)


def _exclusion_text(verdict: Verdict) -> str:
    return f"{', '.join(verdict.excluded)} does not run this model for a while: {verdict.reason}"
