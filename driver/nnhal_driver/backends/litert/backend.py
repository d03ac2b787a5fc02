"""Backend CpuAcc."""

from collections.abc import Sequence
from functools import partial

from nnhal import litert_extension
from nnhal.types import Extension
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
from nnhal_driver.backends.litert import operations  # noqa: F401 - registers the converters
from nnhal_driver.backends.litert.convert import check_operation
from nnhal_driver.backends.litert.engine import engine_version, require_engine
from nnhal_driver.backends.litert.inlining import is_submodel, runs_alone
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.backends.litert.subgraph import NO_PROCESSES, LitertSubgraph
from nnhal_driver.backends.options import BackendOptions
from nnhal_driver.backends.registry import REPLACED, register

REPLACED["Unverified"] = "CpuAcc runs all regions of the LiteRT extension"


@partial(register, import_engine=require_engine)
class CpuAcc(Backend):
    """Accelerated backend: LiteRT with XNNPACK.

    Args:
        options: options of the operator. CpuAcc has `threads`: how many may serve one call, by default all CPUs.

    Raises:
        EngineMissingError: the package ai-edge-litert is not installed.
    """

    id = "CpuAcc"
    version = "2"
    stops_between_operations = False  # the engine runs a model as a whole
    hosting = NO_PROCESSES

    def __init__(self, options: BackendOptions | None = None) -> None:
        require_engine()
        self._max_threads = 0
        if options is not None:
            self._max_threads = options.threads
            options.exclude_from_cache_key("threads")  # each start chooses the threads anew

    def supports(self, operation: OperationView) -> Support:
        """Support operations that LiteRT computes as NNAPI defines them, according to shapes and constants."""
        try:
            check_operation(operation)
        except Unsupported as error:
            return Support(error.reason, error.nearest)
        return Support()

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Convert a subgraph to a TFLite model, with interpreters."""
        return LitertSubgraph(subgraph, options, self.hosting, max_threads=self._max_threads)

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """Separate the regions of the LiteRT extension that run alone."""
        alone = [view.index for view in subgraph.operations if is_submodel(view) and runs_alone(view)]
        if not alone or len(subgraph.operations) == 1:
            return OptimizedSubgraph()
        parts = ((index,) for index in alone)
        return OptimizedSubgraph(tuple(Substitution(i, self.compile(subgraph.part(i), options)) for i in parts))

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        """Load a saved TFLite model."""
        return LitertSubgraph(subgraph, options, self.hosting, sections, self._max_threads)

    def extensions(self) -> Sequence[Extension]:
        """Return the LiteRT extension."""
        return (litert_extension.EXTENSION,)

    def fingerprint(self) -> str:
        """Return the version of the engine."""
        return f"LiteRT {engine_version()}"
