"""Registry of the rules for operators, and the operator that a rule checks.

    @rule("SOFTMAX", types=["T:f32|i8 -> T"], options="SoftmaxOptions")
    def softmax(op: OperatorCheck) -> None:
        op.require_range("beta", op.float_option("beta"), 2.0**-10, 2.0**10)

A rule checks what LiteRT's kernel takes for granted. The types, the number of tensors and the quantization are checked
before. The declared shapes of the outputs are checked afterwards: they must be those that the kernel computes, as
`nnhal.tflite_schema.shapes` infers them. For operators that it does not have, the rule calls `output_shape`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NoReturn, cast

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.backends.litert.submodel.limits import SubModelLimits
from nnhal_driver.backends.litert.submodel.model import (
    InvalidSubModel,
    SubModel,
    SubModelOperator,
    SubModelQuantization,
    SubModelTensor,
    operator_path,
)
from nnhal_driver.backends.litert.submodel.signature import TypeSignature

Shape = tuple[int, ...]
Check = Callable[["OperatorCheck"], None]

QUANTIZED_TYPES = frozenset(["INT4", "INT8", "UINT8", "INT16"])
_ACTIVATIONS = 4
"""The last activation that kernels know. SIGN_BIT has no kernel."""


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """A registered rule.

    Attributes:
        check: the function.
        signatures: the supported types.
        options: name of the options table; "" if the operator has none.
        optional_options: whether the table may be missing.
        quantized: whether tensors of quantized types must have a scale.
        per_channel: inputs that may have several scales.
        states: inputs that are variables.
        intermediates: number of tensors that may carry the quantization of values inside the operator.
    """

    check: Check
    signatures: tuple[TypeSignature, ...]
    options: str
    optional_options: bool
    quantized: bool
    per_channel: frozenset[int]
    states: frozenset[int]
    intermediates: int = 0


RULES: dict[str, OperatorRule] = {}
"""Rules by name of the operator. An operator without a rule is refused."""


def rule(
    *names: str,
    types: Sequence[str],
    options: str = "",
    optional_options: bool = False,
    quantized: bool = True,
    per_channel: Sequence[int] = (),
    states: Sequence[int] = (),
    intermediates: int = 0,
) -> Callable[[Check], Check]:
    """Register a function as the rule for some operators. See `OperatorRule`."""
    signatures = tuple(map(TypeSignature, types))

    def register(check: Check) -> Check:
        for name in names:
            assert name not in RULES, name
            RULES[name] = OperatorRule(
                check,
                signatures,
                options,
                optional_options,
                quantized,
                frozenset(per_channel),
                frozenset(states),
                intermediates,
            )
        return check

    return register


class OperatorCheck:
    """An operator that is checked, with its tensors.

    Attributes:
        model: the sub-model.
        operator: the operator.
        inputs: its inputs; None for an omitted one.
        outputs: its outputs.
        work: an estimate of the elementary steps of one execution. Rules raise it.
        calls: the subgraphs that it calls, each with the largest number of times.
        deferred: checks that need valid subgraphs. They run when all operators have been checked.
    """

    def __init__(
        self, model: SubModel, graph: int, index: int, operator: SubModelOperator, limits: SubModelLimits
    ) -> None:
        tensors = model.graphs[graph].tensors
        self.model, self.graph, self.index, self.operator, self.limits = model, graph, index, operator, limits
        self.inputs = [tensors[i] if i >= 0 else None for i in operator.inputs]
        self.outputs = [tensors[o] for o in operator.outputs]
        self.calls: list[tuple[int, int]] = []
        self.deferred: list[Callable[[], None]] = []
        self.work = sum(t.elements for t in (*self.inputs, *self.outputs) if t is not None)

    # ---- Failures -----------------------------------------------------------------------------------------

    def fail(self, problem: str) -> NoReturn:
        """Raise the error of this operator."""
        raise InvalidSubModel(f"{operator_path(self.graph, self.index, self.operator.kind)}: {problem}")

    def require(self, condition: object, problem: str) -> None:
        """Check a condition. Raises InvalidSubModel if it does not hold."""
        if not condition:
            self.fail(problem)

    def require_range(self, name: str, value: float, low: float, high: float) -> None:
        """Check that a value is in a closed range."""
        if not low <= value <= high:
            self.fail(f"{name} is {value}; expected {low} to {high}")

    # ---- Tensors ------------------------------------------------------------------------------------------

    def input(self, index: int) -> SubModelTensor:
        """Return an input that must be present."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            self.fail(f"input {index} is missing")
        return tensor

    def optional(self, index: int) -> SubModelTensor | None:
        """Return an input, or None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def constant(self, index: int) -> AnyArray:
        """Return the value of an input that must be constant."""
        tensor = self.input(index)
        if tensor.data is None:
            self.fail(f"input {index} is not constant; its value must be known")
        return tensor.values()

    def integers(self, index: int, length: int | None = None) -> list[int]:
        """Return the elements of a constant input of rank 1, or of rank 0 if `length` is 1.

        Without a length, there is at most one element for each dimension of a tensor.
        """
        value = self.vector(index, length)
        if length is None and value.size > self.limits.rank:
            self.fail(f"input {index} has {value.size} elements; expected at most {self.limits.rank}")
        return cast("list[int]", value.tolist())

    def vector(self, index: int, length: int | None) -> AnyArray:
        """Return the elements of a constant input as `integers` does, in an array: there may be millions."""
        value = self.constant(index)
        if value.ndim > 1 or (length is not None and value.size != length) or (length != 1 and value.ndim != 1):
            self.fail(f"input {index} has shape {list(value.shape)}; expected {[length or 'n']}")
        return value.reshape(-1)

    def integer(self, index: int) -> int:
        """Return the only element of a constant input."""
        return self.integers(index, 1)[0]

    def shape(self, index: int, *, rank: int | None = None, low: int = 0, high: int = 8) -> Shape:
        """Return the shape of an input. Checks its rank: the exact one, or its range."""
        shape = self.input(index).shape
        if rank is not None:
            low = high = rank
        if not low <= len(shape) <= high:
            expected = f"{low}" if low == high else f"{low} to {high}"
            self.fail(f"input {index} has shape {list(shape)}; expected rank {expected}")
        return shape

    def input_shape(self, index: int, shape: Sequence[int]) -> None:
        """Check the shape of an input, if it is present."""
        tensor = self.optional(index)
        if tensor is not None and tensor.shape != tuple(shape):
            self.fail(f"input {index} has shape {list(tensor.shape)}; expected {list(shape)}")

    def output_shape(self, shape: Sequence[int], index: int = 0) -> None:
        """Check that an output is declared with the shape that the kernel computes."""
        if self.outputs[index].shape != tuple(shape):
            self.fail(f"output {index} has shape {list(self.outputs[index].shape)}; expected {list(shape)}")

    def bounded(self, name: str, elements: int) -> None:
        """Check the size of a temporary tensor of the kernel, in elements of up to 4 bytes."""
        if elements * 4 > self.limits.tensor_bytes:
            self.fail(f"{name} has {elements} elements; at most {self.limits.tensor_bytes // 4} are supported")

    # ---- Options ------------------------------------------------------------------------------------------

    def option(self, name: str) -> int:
        """Return an integer or Boolean option."""
        return cast("int", self.operator.options[name])

    def shape_option(self, name: str) -> tuple[int, ...]:
        """Return an option that is a vector of integers."""
        return cast("tuple[int, ...]", self.operator.options[name])

    def float_option(self, name: str) -> float:
        """Return a real option."""
        return cast("float", self.operator.options[name])

    def positive(self, *names: str, high: int = 2**15) -> None:
        """Check that options are from 1 to a bound."""
        for name in names:
            value = self.option(name)
            if value < 1:
                self.fail(f"{name} is {value}; expected at least 1")
            if value > high:
                self.fail(f"{name} is {value}; expected at most {high}")

    def activation(self) -> None:
        """Check the fused activation."""
        self.require_range("fused_activation_function", self.option("fused_activation_function"), 0, _ACTIVATIONS)

    def axis(self, name: str, value: int, rank: int) -> int:
        """Return an axis from 0, after checking its range."""
        if not -rank <= value < rank:
            self.fail(f"{name} is {value}; expected {-rank} to {rank - 1}")
        return value % rank

    # ---- Quantization -------------------------------------------------------------------------------------

    @cached_property
    def is_quantized(self) -> bool:
        """True if input 0 has a quantized type."""
        return self.input(0).type in QUANTIZED_TYPES

    def same_quantization(self, *tensors: SubModelTensor) -> None:
        """Check that tensors have the same scale and zero point, if they have any."""
        first, *others = (quantization_key(tensor) for tensor in tensors)
        if any(other != first for other in others):
            self.fail(f"scales and zero points {[first, *others]} differ; expected the same")

    def multiplier(self, name: str, value: float, low: float = 2.0**-31, high: float = 2.0**15) -> None:
        """Check the factor between the scales of quantized tensors. Kernels turn it into a fixed-point number."""
        if not low <= value <= high:
            self.fail(f"{name} is {value:g}; expected {low:g} to {high:g}")


def scale(tensor: SubModelTensor) -> float:
    """Return the only scale of a quantized tensor."""
    assert tensor.quantization is not None
    return float(tensor.quantization.scales[0])


def zero_point(tensor: SubModelTensor) -> int:
    """Return the only zero point of a quantized tensor."""
    assert tensor.quantization is not None
    return int(tensor.quantization.zero_points[0])


def scales(quantization: SubModelQuantization) -> AnyArray:
    """Return the scales in double precision."""
    return quantization.scales.astype(np.float64)


def quantization_key(tensor: SubModelTensor) -> tuple[float, int] | None:
    """Return the first scale and zero point; None without quantization."""
    return None if tensor.quantization is None else (scale(tensor), zero_point(tensor))


def elements(shape: Sequence[int]) -> int:
    """Return the number of elements."""
    return prod(shape)
