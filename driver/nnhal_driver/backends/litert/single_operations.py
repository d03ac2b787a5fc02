"""Operations as subgraphs of their own, for profiled executions.

LiteRT has a profiler, but its Python interface does not offer it, and XNNPACK runs a whole model as one node. So a
profiled execution runs the operations one by one, with the engine and the number of threads of an ordinary execution.
The results are the same. Values are copied between the operations, and the engine cannot fuse them.
"""

import time
from collections.abc import Sequence

from nnhal.types import AnyArray
from nnhal_driver.backends.api import CompileOptions, Output, Profile, Run, SubgraphView
from nnhal_driver.backends.litert.convert import LoweredSubgraph, lower
from nnhal_driver.backends.litert.engine import SubgraphInterpreter
from nnhal_driver.backends.litert.writer import write_subgraphs
from nnhal_driver.operations.call import Shape


class SingleOperations:
    """The operations of a subgraph as subgraphs of one model, for inputs of certain shapes. Serves one call at a time.

    Raises:
        Unsupported: an operation cannot be converted on its own.
        RuntimeError: the engine rejects the model, or cannot allocate its tensors.
        HalError: the client may not use so much memory.
    """

    def __init__(self, subgraph: SubgraphView, shapes: Sequence[Shape], options: CompileOptions, threads: int) -> None:
        self._subgraph = subgraph
        self._parts: list[tuple[SubgraphView, LoweredSubgraph]] = []
        self._constants: dict[int, AnyArray] = {}
        known = dict(zip(subgraph.inputs, shapes, strict=True))
        for view in subgraph.operations:
            part = subgraph.part([view.index])
            lowered = lower(part, [known[i] for i in part.inputs], options.tensor_bytes)
            known.update((o, shape) for o, (_, shape) in zip(part.outputs, lowered.outputs, strict=True))
            if lowered.constants:  # an operation on constants: the engine has nothing to run
                self._constants.update(zip(part.outputs, lowered.constants.values(), strict=True))
            else:
                self._parts.append((part, lowered))
        self._file = write_subgraphs([lowered.part for _, lowered in self._parts], options.reserve)
        writers = [(lowered.writer, lowered.part[2]) for _, lowered in self._parts]
        size = sum(writer.arena(outputs)[0] + writer.packed_bytes() for writer, outputs in writers)
        self._reservation = options.reserve(size)
        self._engine = SubgraphInterpreter(self._file.source, threads) if self._parts else None
        self._has_variables = any(lowered.writer.variables for _, lowered in self._parts)

    def run(self, inputs: Sequence[AnyArray], outputs: Sequence[Output], run: Run, profile: Profile) -> None:
        """Run the operations in order, and report the time of each.

        Raises:
            RuntimeError: the engine failed, and no output was delivered.
            HalError: the execution must end, or an output could not be delivered.
        """
        engine = self._engine
        if engine is not None and self._has_variables:
            engine.reset_variables()
        values = {**self._constants, **dict(zip(self._subgraph.inputs, inputs, strict=True))}
        for number, (part, lowered) in enumerate(self._parts):
            run.check()
            assert engine is not None
            for operand, tensor in zip(part.inputs, lowered.inputs, strict=True):
                if tensor is not None:
                    engine.view(number, tensor)[...] = values[operand]
            start_ns = time.perf_counter_ns()
            engine.invoke(number)
            duration_ns = time.perf_counter_ns() - start_ns
            (view,) = part.operations
            profile.span(view.graph.operation_name(view.type), start_ns, duration_ns, view)
            for operand, (tensor, _) in zip(part.outputs, lowered.outputs, strict=True):
                assert tensor is not None
                values[operand] = engine.view(number, tensor)
        for operand, output in zip(self._subgraph.outputs, outputs, strict=True):
            output.write(values[operand])
