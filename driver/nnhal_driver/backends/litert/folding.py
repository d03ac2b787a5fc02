"""Constant folding: an operation whose inputs are all constants is computed once, when the TFLite model is built.

CpuRef's kernels compute the results. CAST, DEQUANTIZE and operations that move elements are exact, so LiteRT would give
the same bits. The same holds for integers, and for float32 where IEEE 754 fixes the result (ADD, MUL, SQRT, ...). Other
results may differ from LiteRT's in the last digits, and are those that the HAL's reference gives.

Results are computed on demand and forgotten when the model is written. So weights that are converted, for example from
float16, only need memory in the model's file.
"""

from collections import OrderedDict
from collections.abc import Container, Mapping, Sequence
from math import prod
from threading import RLock

import numpy as np

from nnhal.errors import HalError
from nnhal.types import DTYPES, AnyArray, OperandLifeTime, byte_size
from nnhal_driver.backends.division import DividedCall
from nnhal_driver.backends.litert.writer import Value
from nnhal_driver.backends.reference.kernel import KERNELS, RANDOM
from nnhal_driver.graph import Graph, OperationView
from nnhal_driver.operations.call import Shape
from nnhal_driver.operations.multiply_adds import count_multiply_adds

_MIN_TOTAL = 64 * 2**20
_MAX_GROWTH = 4
"""Limit of all results together, in bytes and in multiples of the graph's own constants. It bounds the file of a model
that expands small constants. Further operations run in each execution."""
_MAX_TRIAL = 2**26
"""Limit of the work of an operation that is computed to see whether it fails, in multiply-adds or elements. Larger ones
run in each execution: the answer to whether they are supported must not take long."""
_REMEMBERED = 16 * 2**20
"""Bytes of results that are remembered until the model is written."""


class GraphConstants:
    """Constants of a graph, and results of its operations on constants. Thread safe.

    Attributes:
        folded: indexes of the operations whose results are constants.
    """

    def __init__(self, graph: Graph) -> None:
        self.folded: set[int] = set()
        self._graph = graph
        self._own = graph.constants
        self._writers: dict[int, OperationView] = {}
        self._shapes: dict[int, Shape] = {}
        self._total = 0
        self._recent: OrderedDict[int, AnyArray] = OrderedDict()
        self._recent_bytes = 0
        self._lock = RLock()

    def __contains__(self, operand: int) -> bool:
        return operand in self._own or operand in self._writers

    def shape(self, operand: int) -> Shape:
        """Return the shape of a constant."""
        return self._shapes[operand] if operand in self._writers else self._own[operand].shape

    def array(self, operand: int) -> AnyArray:
        """Return the value of a constant, read-only."""
        if operand not in self._writers:
            return self._own[operand]
        with self._lock:
            if operand in self._recent:
                self._recent.move_to_end(operand)
                return self._recent[operand]
            return self._compute(operand)

    def value(self, operand: int) -> Value:
        """Return a constant for a model's file: the array, or a function that computes it."""
        return self._own[operand] if operand in self._own else lambda: self.array(operand)

    def forget(self) -> None:
        """Free the results that were computed. They are computed again on demand."""
        with self._lock:
            self._recent.clear()
            self._recent_bytes = 0

    def fold(self, view: OperationView, shapes: Sequence[Shape]) -> None:
        """Add the results of an operation if all its inputs are constants. Call it in an order of execution.

        The operation has passed its shape rule, which gave the shapes of its outputs.
        """
        if view.type not in KERNELS or view.type in RANDOM or not all(map(self._is_known, view.operation.inputs)):
            return
        outputs = dict(zip(view.operation.outputs, shapes, strict=True))
        size = sum(byte_size(self._graph.operands[o].type, shape) for o, shape in outputs.items())
        can_fail = any(self._graph.operands[o].scale for o in outputs)
        total = self._total + size
        # the sum comes last: a model from the cache reads its constants on demand
        if total > _MIN_TOTAL and total > _MAX_GROWTH * sum(array.nbytes for array in self._own.values()):
            return
        if can_fail and self._work(view, outputs) > _MAX_TRIAL:
            return
        self._writers |= dict.fromkeys(outputs, view)
        self._shapes |= outputs
        if can_fail:
            try:
                self.array(view.operation.outputs[0])
            except (ArithmeticError, HalError):  # kernels fail for some scales of quantized results
                for output in outputs:
                    del self._writers[output], self._shapes[output]
                return
        self._total = total
        self.folded.add(view.index)

    def _is_known(self, operand: int) -> bool:
        return operand in self or self._graph.operands[operand].lifetime == OperandLifeTime.NO_VALUE

    def _work(self, view: OperationView, outputs: Mapping[int, Shape]) -> int:
        """Return the multiply-adds of an operation, or the elements of its arguments if it does not multiply."""
        shapes = {o: self.shape(o) for o in view.operation.inputs if o in self} | dict(outputs)
        count = count_multiply_adds(view, shapes)
        return sum(map(prod, shapes.values())) if count is None else count

    def _compute(self, operand: int) -> AnyArray:
        """Return a result, computed with all results that it needs. Each is freed when nothing more needs it."""
        recent = dict(self._recent)
        steps = self._steps(operand, recent)
        last_uses = {o: step for step, view in enumerate(steps) for o in view.operation.inputs}
        values: dict[int, AnyArray | None] = {}
        for step, view in enumerate(steps):
            inputs = set(view.operation.inputs)
            values |= {o: recent.get(o, self._own.get(o)) for o in inputs if o not in values}
            results = _run(view, values, [self._shapes[o] for o in view.operation.outputs])
            values |= results
            self._remember(results)
            for o in inputs:
                if last_uses[o] == step:
                    del values[o]
        result = values[operand]
        assert result is not None
        return result

    def _steps(self, operand: int, recent: Container[int]) -> list[OperationView]:
        """Return the operations that a result needs, except those of recent results, in an order of execution."""
        needed: dict[int, OperationView] = {}
        pending = [operand]
        while pending:
            o = pending.pop()
            view = self._writers.get(o)
            if view is not None and view.index not in needed and o not in recent:
                needed[view.index] = view
                pending += view.operation.inputs
        return [needed[index] for index in sorted(needed)]

    def _remember(self, results: Mapping[int, AnyArray]) -> None:
        self._recent |= results
        self._recent_bytes += sum(array.nbytes for array in results.values())
        while self._recent_bytes > _REMEMBERED:
            self._recent_bytes -= self._recent.popitem(last=False)[1].nbytes


def _run(view: OperationView, values: Mapping[int, AnyArray | None], shapes: Sequence[Shape]) -> dict[int, AnyArray]:
    """Return the results of an operation by operand, read-only."""
    outputs = view.operation.outputs
    call = DividedCall(view, {**values, **dict.fromkeys(outputs)}, {}, check=view.graph.check)
    call.expect(shapes)
    result = KERNELS[view.type](call)
    arrays = [result] if isinstance(result, np.ndarray) else result
    for o, array, shape in zip(outputs, arrays, shapes, strict=True):
        assert array.shape == shape and array.dtype == DTYPES[view.graph.operands[o].type], view.name
        array.flags.writeable = False
    return dict(zip(outputs, arrays, strict=True))
