"""The backend CpuAcc itself: what it takes, and how it compiles."""

from driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Sections,
    SubgraphView,
    Support,
)
from driver.backends.litert import operations  # noqa: F401 - registers the converters
from driver.backends.litert.build import check
from driver.backends.litert.compiled import LitertSubgraph
from driver.backends.litert.engine import available, version
from driver.backends.litert.known import Refused
from driver.backends.registry import register


@register
class CpuAcc(Backend):
    """The accelerated backend.

    Raises:
        EngineMissingError: the package ai-edge-litert is not installed.
    """

    id = "CpuAcc"
    version = "1"

    def __init__(self) -> None:
        available()

    def supports(self, operation: OperationView) -> Support:
        """Yes for what LiteRT does as NNAPI means it, as far as shapes and constants tell."""
        try:
            check(operation)
        except Refused as refused:
            return Support(refused.reason, refused.nearest)
        return Support()

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """A TFLite model, with interpreters."""
        return LitertSubgraph(subgraph, options)

    def load(self, subgraph: SubgraphView, sections: Sections, options: CompileOptions) -> CompiledSubgraph:
        """The TFLite model as it was saved."""
        return LitertSubgraph(subgraph, options, sections)

    def fingerprint(self) -> str:
        """The engine."""
        return f"LiteRT {version()}"
