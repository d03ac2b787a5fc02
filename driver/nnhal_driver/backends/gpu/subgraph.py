"""Subgraph on the GPU: the TFLite model of CpuAcc, compiled by the GPU accelerator."""

from collections.abc import Sequence

from nnhal.errors import general_failure
from nnhal.types import DTYPES
from nnhal_driver.backends.api import CompiledSubgraph, CompileOptions, Output, Run, Sections, SubgraphView
from nnhal_driver.backends.gpu.engine import GpuBuffer, GpuMemory, GpuModel, GpuSettings, raise_if_lost
from nnhal_driver.backends.gpu.litert_api import LitertError
from nnhal_driver.backends.gpu.widening import widen
from nnhal_driver.backends.litert.convert import ConvertedModel, convert, static_shapes
from nnhal_driver.backends.litert.serialization import load, save
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.operations.call import Shape
from nnhal_driver.scheduling.paced_check import proceed

_COUNT_BYTES = 8
_MAX_PENDING_S = 0.02
"""Work that an execution may have started and not waited for. To wait takes 0.1 ms, in which the GPU has no work."""


class GpuSubgraph(CompiledSubgraph):
    """A subgraph of known shapes. Its inputs and outputs are in the memory of the GPU.

    Args:
        subgraph: the operations.
        options: options of the preparation.
        settings: settings of the accelerator.
        memory: memory of the GPU.
        sections: saved sections; if None, the operations are converted and compiled.

    Attributes:
        model: the TFLite model.
        shapes: shapes of its inputs.

    Raises:
        HalError: GENERAL_FAILURE: the accelerator does not take all operations; or what `CompileOptions.reserve`
            raises.
        MemoryError: the GPU has not enough memory for the model, whose need is estimated from its tensors.
    """

    copies_inputs = True  # into the memory of the GPU

    def __init__(
        self,
        subgraph: SubgraphView,
        options: CompileOptions,
        settings: GpuSettings,
        memory: GpuMemory,
        sections: Sections | None = None,
    ) -> None:
        programs = b""
        try:
            if sections is None:
                self.model, self.shapes = _convert(subgraph, options)
            else:
                programs, sections = _split(sections)
                self.model, self.shapes = load(sections, options.reserve)
            options.check()
            size = self.model.engine_bytes
            self._reservations = options.reserve(size), memory.budget.reserve(size)
            self._gpu = GpuModel(self.model.file.source, settings, programs)
        except (Unsupported, LitertError) as error:
            raise general_failure(f"GpuAcc cannot compile {subgraph.graph.name}: {error}") from error
        self._memory = memory
        self._forms = [
            (shape, DTYPES[subgraph.graph.operands[operand].type])
            for operand, (_, shape) in zip(subgraph.outputs, self.model.outputs, strict=True)
        ]
        self._read = [position for position, tensor in enumerate(self.model.inputs) if tensor is not None]
        self.device_operands = dict.fromkeys((*subgraph.inputs, *subgraph.outputs), memory)

    def save(self) -> Sections:
        """Return the sections of the TFLite model, with the compiled programs in front of the first one."""
        sections = save(self.model, self.shapes)
        programs = self._gpu.programs
        return Sections(len(programs).to_bytes(_COUNT_BYTES) + programs + sections.model, sections.data)

    def execute(self, inputs: Sequence[GpuBuffer], outputs: Sequence[Output], run: Run) -> None:
        """Start the execution on the GPU. The copies of its outputs wait for it.

        The engine cannot stop what it has started, so this waits first for an input that takes long.
        """
        run.check()
        for position in self._read:
            if inputs[position].pending_s > _MAX_PENDING_S:
                self._memory.keep(inputs[position])
                run.check()
        for output, value in zip(outputs, self.compute(inputs), strict=True):
            output.write(value, keep=True)
        run.defer(proceed)  # so that the copies do not hold the slot of the execution

    def compute(self, inputs: Sequence[GpuBuffer]) -> list[GpuBuffer]:
        """Start an execution. Return its outputs, whose values are there when they are copied.

        Raises:
            HalError: GENERAL_FAILURE: the GPU was lost.
        """
        outputs = [self._memory.acquire(*form) for form in self._forms]
        try:
            self._gpu.run([inputs[position] for position in self._read], outputs)
        except LitertError as error:
            raise_if_lost(error)
            raise general_failure(f"the GPU failed: {error}") from error
        return outputs


def _convert(subgraph: SubgraphView, options: CompileOptions) -> tuple[ConvertedModel, tuple[Shape, ...]]:
    subgraph = widen(subgraph)
    shapes = static_shapes(subgraph)
    if shapes is None:
        raise Unsupported("shapes that are known before execution are needed")
    model = convert(subgraph, shapes, options.tensor_bytes, options.check, options.reserve)
    if model.constants or model.has_variables or not model.operators:
        raise Unsupported("it has constant outputs or state, which the CPU handles")
    return model, tuple(shapes)


def _split(sections: Sections) -> tuple[bytes, Sections]:
    """Return the compiled programs, and the sections of the TFLite model."""
    start = _COUNT_BYTES + int.from_bytes(sections.model[:_COUNT_BYTES])
    return sections.model[_COUNT_BYTES:start], Sections(sections.model[start:], sections.data)
