"""Backend GpuAcc."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnhal import litert_extension
from nnhal.errors import general_failure
from nnhal.types import DeviceType, ExecutionPreference, Extension
from nnhal_driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    OptimizedSubgraph,
    Sections,
    SubgraphView,
    Substitution,
    Support,
)
from nnhal_driver.backends.engine_process import EngineHosting
from nnhal_driver.backends.gpu.adapters import claim_adapter
from nnhal_driver.backends.gpu.engine import GpuMemory, GpuSettings
from nnhal_driver.backends.gpu.measurement import measure
from nnhal_driver.backends.gpu.operations import check_gpu_operation
from nnhal_driver.backends.gpu.regions import RegionTrials
from nnhal_driver.backends.gpu.subgraph import GpuSubgraph
from nnhal_driver.backends.gpu.trial import shared_selection
from nnhal_driver.backends.litert.convert import check_operation
from nnhal_driver.backends.litert.engine import engine_version, require_engine
from nnhal_driver.backends.litert.inlining import is_submodel
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.backends.options import BackendOptions, Precision
from nnhal_driver.backends.registry import register

_MEASURED, _ALWAYS = "measured", "always"
_PRECISIONS = {
    Precision.NORMAL: "float32, and float16 where the model allows it",
    Precision.HIGH: "float32",
    Precision.LOW: "float16",
}
"""Precision of computations, in words."""
_SHARED = "this worker serves several clients, so that regions run in processes of their own, without a GPU"
"""Reason for which a region is refused (decision 16)."""


@register
class GpuAcc(Backend):
    """Backend for GPUs: LiteRT's GPU accelerator, which is WebGPU over Vulkan.

    Args:
        options: options of the operator. `adapter`: part of the name of a GPU; by default the first one that is not
            imitated in software. `precision`: normal computes in half precision where the model allows it, low always,
            high never. `memory_bytes`: memory that its models may use, by default all of the GPU. `placement`: measured
            takes what the GPU computes faster than the CPU, always takes all.

    Raises:
        NoAdapterError: there is no such GPU, it fails, or this process uses another one.
        EngineMissingError: the package ai-edge-litert or cffi is not installed.
    """

    id = "GpuAcc"
    version = "1"
    device_type = DeviceType.GPU
    stops_between_operations = False  # the engine starts a model as a whole
    hosting = EngineHosting()

    def __init__(self, options: BackendOptions | None = None) -> None:
        options = options or BackendOptions({})
        name, self._precision = options.text("adapter"), options.precision
        self._placement = options.text("placement", _MEASURED, choices=(_MEASURED, _ALWAYS))
        limit = options.integer("memory_bytes", 0, minimum=0)
        options.exclude_from_cache_key("memory_bytes")
        require_engine()
        self._selection = shared_selection(name)
        self._adapter = self._selection.adapter
        claim_adapter(self._adapter)
        self._memory = GpuMemory(limit or self._adapter.memory_bytes)
        self._regions = RegionTrials(self._memory)

    def supports(self, operation: OperationView) -> Support:
        """Support float operations of known shapes, and regions of the LiteRT extension that pass a trial."""
        try:
            check_operation(operation)
            check_gpu_operation(operation)
            if is_submodel(operation):
                if self.hosting.is_shared:
                    raise Unsupported(_SHARED, "a worker of one client")
                self._regions.check(operation)
        except Unsupported as error:
            return Support(error.reason, error.nearest)
        return Support()

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """Compile a subgraph and measure it. Refuse it if the CPU is faster, or if the results differ."""
        if self._placement == _ALWAYS:
            return OptimizedSubgraph()
        numbers = tuple(view.index for view in subgraph.operations)
        settings, refusal = self._settings(subgraph, options), ""
        for attempt in [settings, replace(settings, half_precision=False)][not settings.half_precision :]:
            compiled = GpuSubgraph(subgraph, options, attempt, self._memory)
            options.check()
            refusal = measure(compiled, self._memory).refusal(half_precision=attempt.half_precision)
            options.check()
            if not refusal:
                return OptimizedSubgraph((Substitution(numbers, compiled),))
        return OptimizedSubgraph(failed=dict.fromkeys(numbers, refusal))

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Compile a subgraph for the GPU."""
        return GpuSubgraph(subgraph, options, self._settings(subgraph, options), self._memory)

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        """Load a saved subgraph. The GPU compiles nothing."""
        if self.hosting.is_shared and subgraph.graph.extensions and any(map(is_submodel, subgraph.operations)):
            raise general_failure(_SHARED)
        return GpuSubgraph(subgraph, options, self._settings(subgraph, options), self._memory, sections)

    def extensions(self) -> Sequence[Extension]:
        """Return the LiteRT extension."""
        return (litert_extension.EXTENSION,)

    def fingerprint(self) -> str:
        """Return the version of the engine, the GPU and its driver: compiled programs are for these."""
        return f"LiteRT {engine_version()}, {self._adapter.name} {self._adapter.driver}"

    def memory_bytes(self) -> int:
        """Return the bytes in the memory of the GPU that its models use."""
        return self._memory.budget.used

    def hardware(self) -> Mapping[str, str]:
        """Return the GPU, its driver, memory and precision, the figures of its trial, and GPUs that failed theirs."""
        facts = {
            "adapter": self._adapter.name + (" (software)" if self._adapter.is_software else ""),
            "driver": self._adapter.driver,
            "memory": f"{self._adapter.memory_bytes / 2**30:.1f} GiB",
            "precision": _PRECISIONS[self._precision],
            "tiny model": str(self._selection.trial),
        }
        return facts | {f"left out: {name}": reason for name, reason in self._selection.left_out.items()}

    def _settings(self, subgraph: SubgraphView, options: CompileOptions) -> GpuSettings:
        is_half = self._precision is Precision.LOW or (subgraph.relaxed and self._precision is Precision.NORMAL)
        is_low = options.preference == ExecutionPreference.LOW_POWER
        return GpuSettings(half_precision=is_half, low_priority=is_low)
