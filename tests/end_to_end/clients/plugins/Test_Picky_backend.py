"""CpuRef without some operations, as an accelerator that lacks them.

Environment variables name them: PICKY_REFUSED those that it refuses, and PICKY_FAILING those that it reports support
for and fails to compile.
"""

import os

from nnhal_backend.v1 import API_VERSION, CompiledSubgraph, CompileOptions, OperationView, SubgraphView, Support
from nnhal_driver.backends.reference.backend import CpuRef


class Picky(CpuRef):
    """CpuRef without some operations."""

    id = "Picky"

    def supports(self, operation: OperationView) -> Support:
        """Refuse some operations."""
        if operation.graph.operation_name(operation.type) in _names("PICKY_REFUSED"):
            return Support("it does not like this")
        return super().supports(operation)

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Fail for some operations."""
        for view in subgraph.operations:
            if view.graph.operation_name(view.type) in _names("PICKY_FAILING"):
                raise ValueError(f"{view.name} is too hard")
        return super().compile(subgraph, options)


def _names(variable: str) -> list[str]:
    return os.environ.get(variable, "").split()


def GetBackendId() -> str:
    """Return the id of the backend."""
    return Picky.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the backend API."""
    return API_VERSION


BackendFactory = Picky
