"""Preparation of models by compilation, from cache files, or from a loaded model."""

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from nnhal.errors import general_failure
from nnhal.types import CacheOutcome, CacheState, ErrorStatus, Extension, PreparationWarning, PrepareModelConfig
from nnhal_driver.activity import ActivityTable, Stage
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.compilation.compiler import place_and_compile
from nnhal_driver.compilation.cost import estimate_duration_ns
from nnhal_driver.compilation.networks import NetworkLoad
from nnhal_driver.execution.buffer import ReserveMemory
from nnhal_driver.execution.buffer_table import BufferTable
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.profiling_contexts import ProfilingContexts
from nnhal_driver.extension_types import extension_types
from nnhal_driver.graph import Graph, drop_caches
from nnhal_driver.model_cache.cache import CachedModel, FilesIdentity, ModelCache, SaveTarget, VerifiedFiles
from nnhal_driver.model_cache.errors import CacheMissError
from nnhal_driver.model_probe import Probe
from nnhal_driver.preparation.model_memory import ModelMemory, free_model
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.preparation.work import Prepare
from nnhal_driver.quarantine import Quarantine, Verdict
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.collector_pause import pause_collector
from nnhal_driver.scheduling.deadline import Deadline
from nnhal_driver.scheduling.latency_history import LatencyHistory
from nnhal_driver.scheduling.preparation import Check
from nnhal_driver.scheduling.scheduler import Scheduler

_LARGE_MODEL = 2000
"""Number of operations from which on the collection of garbage is worth a pause."""


class ModelPreparer:
    """Does the work of the preparations of one device. Thread safe.

    Args:
        device: name of the device.
        backends: its backends, in order of preference.
        cache: loads and saves models.
        scheduler: runs the executions of the prepared models.
        buffers: the buffers of the device.
        quarantine: the models that have crashed a process like this.
        activities: table of the work in progress; None if it is not recorded.
        tensor_bytes: maximum size of a tensor in an execution.
        merge: whether partitions that do not pay for their boundary are merged.
        extensions: returns the extensions that the device supports.
    """

    def __init__(
        self,
        device: str,
        backends: Sequence[Backend],
        cache: ModelCache,
        scheduler: Scheduler,
        buffers: BufferTable,
        quarantine: Quarantine,
        activities: ActivityTable | None,
        tensor_bytes: int,
        merge: bool,
        extensions: Callable[[], Sequence[Extension]],
    ) -> None:
        self._device = device
        self._backends = backends
        self._cache = cache
        self._scheduler = scheduler
        self._buffers = buffers
        self._quarantine = quarantine
        self._activities = activities
        self._tensor_bytes = tensor_bytes
        self._merge = merge
        self._extensions = extensions
        self._profiling = ProfilingContexts(backends)

    def recording(
        self, stage: Stage, digest: bytes, deadline_ns: int, cancellation: Cancellation, prepare: Prepare
    ) -> Prepare:
        """Return a function that does the work of a preparation and records it in the table of activities."""
        activities = self._activities
        if activities is None:
            return prepare

        def run(check: Check) -> Outcome:
            with activities.record(stage, digest, deadline_ns, cancellation):
                return prepare(check)

        return run

    def compile(
        self,
        graphs: Sequence[Graph],
        relaxed: bool,
        config: PrepareModelConfig,
        check: Check,
        save_target: SaveTarget,
        digest: bytes,
        memory: ModelMemory,
        probe: Probe | None,
    ) -> Outcome:
        """Return the outcome of a preparation from a model.

        Args:
            graphs: its graphs.
            relaxed: whether it may compute with less precision.
            config: preference and priority.
            check: raises if the work must end.
            save_target: receives the result.
            digest: digest of the model, or b"".
            memory: memory of the model.
            probe: prepares it in another process first.

        Raises:
            HalError: GENERAL_FAILURE: it is in quarantine, or no backend supports an operation; or what a backend, the
                check or the probe raises.
        """
        check()
        if probe is not None:
            probe(check)
        verdict = self._quarantine.verdict(digest)
        backends = _allowed(self._backends, verdict)
        is_large = sum(len(graph.subgraph.operations) for graph in graphs) > _LARGE_MODEL
        with NetworkLoad(backends) as network, pause_collector() if is_large else nullcontext():
            options = CompileOptions(
                config.preference, self._tensor_bytes, network.number, check=check, reserve=memory.reserve
            )
            try:
                placement, plan = place_and_compile(
                    graphs, backends, options, relaxed=relaxed, check=check, merge=self._merge
                )
                check()
            except BaseException:
                drop_caches(graphs)
                raise
            network.loaded(plan)
        cached = CachedModel(plan, placement, config.priority, config.preference, graphs, digest)
        outcome = self._success(cached, memory)
        if not verdict.excluded:
            return outcome.with_cache(save_target.save(self._cache, cached))
        warning = PreparationWarning("backend-quarantined", _exclusion_text(verdict))
        outcome = replace(outcome, warnings=(*outcome.warnings, warning))
        return outcome.with_cache(save_target.skip(_exclusion_text(verdict)))

    def load(self, verified: VerifiedFiles, check: Check, memory: ModelMemory) -> Outcome:
        """Return the outcome of a preparation from files.

        Raises:
            HalError: GENERAL_FAILURE: the model is in quarantine; or what a backend or the check raises.
            CacheMissError: the files contain no model for the device, or one for a backend in quarantine.
        """
        check()
        verdict = self._quarantine.verdict(verified.digest)
        if verdict.refusal:
            raise general_failure(verdict.refusal)
        if verdict.excluded:
            raise CacheMissError(_exclusion_text(verdict))
        with NetworkLoad(self._backends) as network:
            cached = self._cache.load(verified, check, network.number, memory.reserve)
            network.loaded(cached.plan)
        outcome = self._success(cached, memory, verified.identity)
        check()
        return outcome.with_cache(CacheOutcome(CacheState.HIT))

    def _success(self, cached: CachedModel, memory: ModelMemory, loaded_from: FilesIdentity | None = None) -> Outcome:
        main = cached.plan.graph
        prepared = PreparedModel(
            tuple(main.operands[i] for i in main.subgraph.input_indexes),
            tuple(main.operands[i] for i in main.subgraph.output_indexes),
            cached.placement,
            cached.priority,
            cached.plan,
            self._scheduler,
            self._buffers,
            profiling=self._profiling,
            extension_types=extension_types(main.extensions, self._extensions()),
            loaded_from=loaded_from,
            digest=cached.digest,
            device=self._device,
            reserve=memory.reserve,
            size=memory.size,
            activities=self._activities,
            estimated_ns=estimate_duration_ns(cached.graphs) if self._activities is not None else 0,
        )
        weakref.finalize(cached.plan, free_model, cached.graphs, memory)  # several prepared models may share it
        return Outcome(ErrorStatus.NONE, prepared, placement=cached.placement)


def share_model(
    prepared: PreparedModel, deadline: Deadline, cancellation: Cancellation, reserve: ReserveMemory
) -> Outcome:
    """Return the outcome of a preparation from a loaded model.

    Each client gets an object of its own, because roles of buffers refer to it, and `reserve` is that of the client.
    """
    deadline.check_on_arrival("the preparation")
    cancellation.check()
    shared = replace(prepared, latencies=LatencyHistory(), reserve=reserve)
    return Outcome(ErrorStatus.NONE, shared, placement=shared.placement, cache=CacheOutcome(CacheState.HIT))


def _allowed(backends: Sequence[Backend], verdict: Verdict) -> Sequence[Backend]:
    """Return the backends on which a model may be prepared.

    Raises:
        HalError: GENERAL_FAILURE: it is in quarantine, or no backend is left.
    """
    if verdict.refusal:
        raise general_failure(verdict.refusal)
    allowed = [backend for backend in backends if backend.id not in verdict.excluded]
    if not allowed:
        raise general_failure(f"no backend is left: {verdict.reason}")
    return allowed


def _exclusion_text(verdict: Verdict) -> str:
    return f"{', '.join(verdict.excluded)} does not run this model for a while: {verdict.reason}"
