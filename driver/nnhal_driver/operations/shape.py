"""Shape rules: output shapes of operations, and their `[execution]` constraints (V-RUN-01 to V-RUN-05).

    @shape_rule(OperationType.SOFTMAX)
    def softmax(call: OperationCall) -> list[Shape]:
        call.require(call.number("beta") > 0, "beta must be > 0")
        return [call.shape("input")]

A rule returns one shape per output. `infer` runs it together with the checks that all operations share, and compares
the result with the declared shapes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import prod

from nnhal.errors import limit_exceeded
from nnhal.operations import SIGNATURES
from nnhal.types import ErrorStatus, Operand, byte_size, is_extension, is_tensor
from nnhal_driver.graph import OperationView
from nnhal_driver.operations.call import OperationCall, Shape
from nnhal_driver.validation.rank import check_rank

MAX_TENSOR_BYTES = 2**32 - 1
"""Limit of the HAL (V-RUN-06). A device may set a lower one."""
_MAX_EXTENTS = 2**59
"""Largest product of the dimensions that are not 0. NumPy has no arrays with more, not even empty ones."""

Rule = Callable[[OperationCall], Sequence[Shape]]


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """A registered rule.

    Attributes:
        empty: whether inputs may have no elements.
        failure: status of the error if a value is missing or empty.
        slow: whether the rule or the kernel suppresses boxes, which is not done before an execution.
        rank_4: whether `input` has rank 4 or less.
        requantizes: False if `output` has the scale and zero point of `input`.
    """

    rule: Rule
    empty: bool
    failure: ErrorStatus
    slow: bool
    rank_4: bool
    requantizes: bool


SHAPE_RULES: dict[int, ShapeRule] = {}
"""Every registered rule, by operation type."""


def shape_rule(
    *types: int,
    empty: bool = True,
    failure: ErrorStatus = ErrorStatus.GENERAL_FAILURE,
    slow: bool = False,
    rank_4: bool = False,
    requantizes: bool = True,
) -> Callable[[Rule], Rule]:
    """Register the shape rule of one or more operation types."""

    def register(rule: Rule) -> Rule:
        for type_ in types:
            assert type_ not in SHAPE_RULES, f"operation type {type_} has two shape rules"
            SHAPE_RULES[type_] = ShapeRule(rule, empty, failure, slow, rank_4, requantizes)
        return rule

    return register


def infer(call: OperationCall, declared: Sequence[Shape], tensor_bytes: int = MAX_TENSOR_BYTES) -> list[Shape]:
    """Infer the shapes of the outputs of one run.

    `declared`: declared shape of each output; 0 and () are unknown. `tensor_bytes`: maximum size of one output.

    Raises:
        HalError: GENERAL_FAILURE (or the status of the operation's rule): an argument has no value (V-RUN-01) or no
            elements (V-RUN-02), an [execution] constraint is broken (V-RUN-03), a declared shape is contradicted
            (V-RUN-04), an output is too large (V-RUN-06); RESOURCE_EXHAUSTED_PERSISTENT: limit tensor_bytes.
    """
    rule = SHAPE_RULES[call.view.type]
    _check_presence(call, rule)
    if rule.rank_4:
        require_max_rank(call, "input")
    if not rule.requantizes:
        require_same_quantization(call)
    computed = rule.rule(call)
    sizes = [byte_size(_output(call, i).type, shape) for i, shape in enumerate(computed)]
    return check_shapes(call, declared, computed, sizes, tensor_bytes)


def check_shapes(
    call: OperationCall,
    declared: Sequence[Shape],
    computed: Sequence[Shape],
    sizes: Sequence[int],
    tensor_bytes: int = MAX_TENSOR_BYTES,
) -> list[Shape]:
    """Check the shapes of the outputs of one run and their sizes in bytes, as `infer` does. Return the shapes.

    Raises:
        HalError: V-RUN-04 and V-RUN-06.
    """
    for i, (shape, size) in enumerate(zip(computed, sizes, strict=True)):
        _require_size(call, i, shape, size, tensor_bytes)
    return [_merge_shapes(call, i, *shapes) for i, shapes in enumerate(zip(declared, computed, strict=True))]


def _check_presence(call: OperationCall, rule: ShapeRule) -> None:
    arguments = call.view.arguments
    assert arguments is not None
    for name in arguments.inputs:
        if not call.has(name):
            if name not in arguments.optional:
                raise call.failure(_missing(call.view, name), "V-RUN-01", rule.failure)
        elif not rule.empty and 0 in call.shape(name):
            raise call.failure(f"{name} has no elements", "V-RUN-02", rule.failure)


def _missing(view: OperationView, name: str) -> str:
    """Return the message that an argument has no value: which input of the model was omitted, if it is one."""
    inputs, position = view.graph.subgraph.input_indexes, view.positions.get(name)
    omitted = view.graph.number == 0 and position in inputs
    return f"{name} has no value" + (f": input {inputs.index(position)} was omitted" if omitted else "")


def _require_size(call: OperationCall, output: int, shape: Shape, size: int, tensor_bytes: int) -> None:
    check_rank(len(shape), f"{call.view.name}: output {output}")
    if size > MAX_TENSOR_BYTES or (not size and prod(extent or 1 for extent in shape) > _MAX_EXTENTS):
        raise call.failure(f"output {output} has shape {list(shape)}: its size does not fit 32 bits", "V-RUN-06")
    if size > tensor_bytes:
        reason = f"{call.view.name}: output {output} has shape {list(shape)}, {size} bytes; at most {tensor_bytes}"
        raise limit_exceeded("tensor_bytes", reason, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT)


def _output(call: OperationCall, output: int) -> Operand:
    return call.view.graph.operands[call.view.operation.outputs[output]]


def _merge_shapes(call: OperationCall, output: int, declared: Shape, computed: Shape) -> Shape:
    operand = _output(call, output)
    if not (is_tensor(operand.type) or is_extension(operand.type)) or not declared:
        return computed
    if len(declared) != len(computed) or any(d not in (0, c) for d, c in zip(declared, computed, strict=True)):
        raise call.failure(f"output {output} has shape {list(computed)}, declared {list(declared)}", "V-RUN-04")
    return computed


def require_same_quantization(call: OperationCall, input_: str = "input", output: str = "output") -> None:
    """Check that an output has the scale and zero point of an input (V-RUN-05).

    Raises:
        HalError: GENERAL_FAILURE naming both arguments.
    """
    a, b = call.operand(input_), call.operand(output)
    if (a.scale, a.zero_point) != (b.scale, b.zero_point):
        raise call.failure(
            f"{output} has scale {b.scale:g}, zero point {b.zero_point}; {input_} has {a.scale:g}, {a.zero_point}",
            "V-RUN-05",
        )


def require_quantization(call: OperationCall, output: str, scale: float, zero_point: int) -> None:
    """Check that an output has a given scale and zero point (V-RUN-05).

    Raises:
        HalError: GENERAL_FAILURE.
    """
    operand = call.operand(output)
    if (operand.scale, operand.zero_point) != (scale, zero_point):
        raise call.failure(
            f"{output} has scale {operand.scale:g}, zero point {operand.zero_point}; "
            f"it must have {scale:g}, {zero_point}",
            "V-RUN-05",
        )


def require_input_quantization(call: OperationCall, name: str, scale: float, zero_point: int) -> None:
    """Check that an input has a given scale and zero point.

    Raises:
        HalError: GENERAL_FAILURE.
    """
    operand = call.operand(name)
    given = f"scale {operand.scale:g}, zero point {operand.zero_point}"
    valid = (operand.scale, operand.zero_point) == (scale, zero_point)
    call.require(valid, f"{name} has {given}; it must have {scale:g}, {zero_point}")


def require_output_quantization(call: OperationCall, output: str = "output") -> None:
    """Check that a quantized output has the scale and zero point that the signature prescribes (V-RUN-05).

    Raises:
        HalError: GENERAL_FAILURE.
    """
    inputs = [call.view.graph.operands[i] for i in call.view.operation.inputs]
    expected = SIGNATURES[call.view.type].output_quantization(inputs, call.operand(output))
    if expected is not None:
        require_quantization(call, output, *expected)


def broadcast_shape(call: OperationCall, a: str, b: str) -> Shape:
    """Return the broadcast shape of two arguments, aligned at the last dimension. 0 is compatible with 0 and 1.

    Raises:
        HalError: GENERAL_FAILURE: the shapes are incompatible.
    """
    left, right = call.shape(a), call.shape(b)
    shape = []
    for x, y in zip_longest(reversed(left), reversed(right), fillvalue=1):
        call.require(x == y or 1 in (x, y), f"{a} {list(left)} and {b} {list(right)} cannot be broadcast")
        shape.append(y if x == 1 else x)
    return tuple(reversed(shape))


def require_max_rank(call: OperationCall, *names: str) -> None:
    """Check that arguments have rank 4 or less.

    Raises:
        HalError: GENERAL_FAILURE naming the argument.
    """
    for name in names:
        rank = len(call.shape(name))
        call.require(rank <= 4, f"{name} has rank {rank}; it must be at most 4")


def require_shape(call: OperationCall, name: str, shape: Shape) -> None:
    """Check the shape of an argument.

    Raises:
        HalError: GENERAL_FAILURE naming the argument.
    """
    actual = call.shape(name)
    call.require(actual == shape, f"{name} has shape {list(actual)}; it must be {list(shape)}")
