"""Regions of the LiteRT extension on the GPU: which ones it computes, found out by a trial of each."""

import hashlib
from threading import Lock

from nnhal.errors import HalError
from nnhal.lru import LruDict
from nnhal.types import ExecutionPreference
from nnhal_driver.backends.api import CompileOptions, OperationView
from nnhal_driver.backends.gpu.engine import GpuMemory, GpuSettings
from nnhal_driver.backends.gpu.measurement import is_exact
from nnhal_driver.backends.gpu.subgraph import GpuSubgraph
from nnhal_driver.backends.litert.inlining import runs_alone, submodel_of
from nnhal_driver.backends.litert.shape_analysis import Unsupported, analyze_shapes
from nnhal_driver.backends.litert.submodel import SubModelGraph, SubModelOperator
from nnhal_driver.graph import subgraph_view

_MAX_RESULTS = 256
"""Results of trials that are kept."""


class RegionTrials:
    """Trials of regions, whose results are kept by digest: a trial takes as long as a compilation.

    The accelerator takes many operators that it computes in another way than LiteRT, so the results of a region are
    compared as well.

    Args:
        memory: memory of the GPU.
    """

    def __init__(self, memory: GpuMemory) -> None:
        self._memory = memory
        self._lock = Lock()
        self._faults: LruDict[bytes, str] = LruDict(_MAX_RESULTS)

    def check(self, view: OperationView) -> None:
        """Check that the GPU computes a region, which is valid.

        Raises:
            Unsupported: it does not.
            HalError: raised by `Graph.check`.
            MemoryError: the GPU has not enough memory for a trial.
        """
        _check_form(view)
        digest = hashlib.sha256(view.graph.constants[view.operation.inputs[0]].data).digest()
        with self._lock:
            view.graph.check()
            if digest not in self._faults:
                self._faults.put(digest, self._try(view))
            fault = self._faults.use(digest)
        if fault:
            raise Unsupported(fault)

    def _try(self, view: OperationView) -> str:
        """Compile a region and run it on the GPU and on the CPU. Return why the GPU does not compute it, or ""."""
        try:
            options = CompileOptions(ExecutionPreference.FAST_SINGLE_ANSWER)
            part = subgraph_view(view.graph, [view.index], relaxed=False)
            compiled = GpuSubgraph(part, options, GpuSettings(), self._memory)
            return "" if is_exact(compiled, self._memory) else "the GPU computes this region in another way than LiteRT"
        except HalError as error:
            return f"the GPU accelerator does not take this region: {error.reason}"
        except RuntimeError as error:
            return f"the trial of this region failed: {error}"


def _check_form(view: OperationView) -> None:
    """Check what is known without a trial. Raises Unsupported."""
    if runs_alone(view):
        raise Unsupported("the GPU needs a region of known shapes, without control flow and custom operators")
    if any(operand in analyze_shapes(view.graph).constants for operand in view.operation.inputs[1:]):
        raise Unsupported("the GPU needs the constants of a region within it", "constants in the sub-model")
    graph = submodel_of(view).main
    types = {tensor.type for tensor in graph.tensors if tensor.data is None}
    if types != {"FLOAT32"}:
        raise Unsupported(f"the GPU computes regions of FLOAT32; this one has {', '.join(sorted(types))}", "FLOAT32")
    if fatal := [operator.kind for operator in graph.operators if _is_fatal(graph, operator)]:
        raise Unsupported(f"the GPU accelerator ends the process for such a {fatal[0]}")


def _is_fatal(graph: SubModelGraph, operator: SubModelOperator) -> bool:
    """Return whether the accelerator ends its process when it compiles an operator."""
    if operator.kind == "TRANSPOSE":
        order = graph.inputs_of(operator)[1]
        return order is not None and order.data is not None and bool((order.values() < 0).any())
    return operator.kind == "SPLIT" and len(operator.outputs) == 1
