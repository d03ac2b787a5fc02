"""Shape rules: what shape an operation's outputs have, and its `[execution]` constraints (V-RUN-01 to V-RUN-05).

    @shape_rule(OperationType.SOFTMAX)
    def softmax(call: Call) -> list[Shape]:
        call.require(call.number("beta") > 0, "beta must be > 0")
        return [call.shape("input")]

A rule gives one shape per output. `infer` runs it with the checks that all operations share, and merges what it gives
with the declared shapes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from driver.graph import hold_rank
from driver.operations.call import Call, Shape
from nnhal.errors import HalError
from nnhal.operations import SIGNATURES
from nnhal.types import ErrorKind, ErrorStatus, Operand, byte_size, is_tensor

MAX_TENSOR_BYTES = 2**32 - 1
"""The HAL's own bound (V-RUN-06); a device may set a lower one."""

Rule = Callable[[Call], Sequence[Shape]]


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """A registered rule. `empty`: inputs may have no elements; `failure`: status where a value is missing or empty."""

    rule: Rule
    empty: bool
    failure: ErrorStatus


SHAPE_RULES: dict[int, ShapeRule] = {}
"""Every registered rule, by operation type."""


def shape_rule(
    *types: int, empty: bool = True, failure: ErrorStatus = ErrorStatus.GENERAL_FAILURE
) -> Callable[[Rule], Rule]:
    """Registers the shape rule of one or more operation types."""

    def register(rule: Rule) -> Rule:
        for type_ in types:
            assert type_ not in SHAPE_RULES, f"operation type {type_} has two shape rules"
            SHAPE_RULES[type_] = ShapeRule(rule, empty, failure)
        return rule

    return register


def infer(call: Call, declared: Sequence[Shape], tensor_bytes: int = MAX_TENSOR_BYTES) -> list[Shape]:
    """Shapes of the outputs of one run.

    Args:
        call: the run.
        declared: what is known of each output beforehand; 0 and () are unknown.
        tensor_bytes: the most that one output may have.

    Raises:
        HalError: GENERAL_FAILURE (or what the operation's file says): an argument has no value (V-RUN-01) or no
            elements (V-RUN-02), an [execution] constraint is broken (V-RUN-03), a declared shape is contradicted
            (V-RUN-04), an output is too large (V-RUN-06); RESOURCE_EXHAUSTED_PERSISTENT: limit tensor_bytes.
    """
    rule = SHAPE_RULES[call.view.type]
    _check_presence(call, rule)
    computed = rule.rule(call)
    for i, shape in enumerate(computed):
        _hold_size(call, i, shape, tensor_bytes)
    return [_merged(call, i, known, found) for i, (known, found) in enumerate(zip(declared, computed, strict=True))]


def _check_presence(call: Call, rule: ShapeRule) -> None:
    arguments = call.view.arguments
    assert arguments is not None
    for name in arguments.inputs:
        if not call.has(name):
            if name not in arguments.optional:
                raise call.failure(f"{name} has no value", "V-RUN-01", rule.failure)
        elif not rule.empty and 0 in call.shape(name):
            raise call.failure(f"{name} has no elements", "V-RUN-02", rule.failure)


def _hold_size(call: Call, output: int, shape: Shape, tensor_bytes: int) -> None:
    hold_rank(len(shape), f"{call.view.name}: output {output}")
    size = byte_size(_output(call, output).type, shape)
    if size > MAX_TENSOR_BYTES:
        raise call.failure(f"output {output} has shape {list(shape)}: its size does not fit 32 bits", "V-RUN-06")
    if size > tensor_bytes:
        raise HalError(
            ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
            f"{call.view.name}: output {output} has shape {list(shape)}, {size} bytes; "
            f"at most {tensor_bytes} (limit tensor_bytes)",
            kind=ErrorKind.LIMIT,
            limit="tensor_bytes",
        )


def _output(call: Call, output: int) -> Operand:
    return call.view.graph.operands[call.view.operation.outputs[output]]


def _merged(call: Call, output: int, declared: Shape, computed: Shape) -> Shape:
    operand = _output(call, output)
    if not is_tensor(operand.type) or not declared:
        return computed
    if len(declared) != len(computed) or any(d not in (0, c) for d, c in zip(declared, computed, strict=True)):
        raise call.failure(f"output {output} has shape {list(computed)}, declared {list(declared)}", "V-RUN-04")
    return computed


def same_quantization(call: Call, input_: str = "input", output: str = "output") -> None:
    """Holds that an output is quantised as an input is (V-RUN-05).

    Raises:
        HalError: GENERAL_FAILURE naming both.
    """
    a, b = call.operand(input_), call.operand(output)
    if (a.scale, a.zero_point) != (b.scale, b.zero_point):
        raise call.failure(
            f"{output} has scale {b.scale:g}, zero point {b.zero_point}; {input_} has {a.scale:g}, {a.zero_point}",
            "V-RUN-05",
        )


def fixed_quantization(call: Call, output: str, scale: float, zero_point: int) -> None:
    """Holds that an output is quantised as its operation says (V-RUN-05).

    Raises:
        HalError: GENERAL_FAILURE.
    """
    found = call.operand(output)
    if (found.scale, found.zero_point) != (scale, zero_point):
        raise call.failure(
            f"{output} has scale {found.scale:g}, zero point {found.zero_point}; it must have {scale:g}, {zero_point}",
            "V-RUN-05",
        )


def fixed_output(call: Call, output: str = "output") -> None:
    """Holds the scale and zero point that the operation's signature gives a quantised output (V-RUN-05).

    Raises:
        HalError: GENERAL_FAILURE.
    """
    inputs = [call.view.graph.operands[i] for i in call.view.operation.inputs]
    wanted = SIGNATURES[call.view.type].output_quantization(inputs, call.operand(output))
    if wanted is not None:
        fixed_quantization(call, output, *wanted)


def broadcast(call: Call, a: str, b: str) -> Shape:
    """The common shape of two arguments, aligned at the last dimension; 0 goes with 0 and 1.

    Raises:
        HalError: GENERAL_FAILURE: they do not go together.
    """
    left, right = call.shape(a), call.shape(b)
    out = []
    for x, y in zip_longest(reversed(left), reversed(right), fillvalue=1):
        call.require(x == y or 1 in (x, y), f"{a} {list(left)} and {b} {list(right)} cannot be broadcast")
        out.append(y if x == 1 else x)
    return tuple(reversed(out))


def limit_rank(call: Call, *names: str) -> None:
    """Holds that arguments have rank 4 or less.

    Raises:
        HalError: GENERAL_FAILURE naming the argument.
    """
    for name in names:
        rank = len(call.shape(name))
        call.require(rank <= 4, f"{name} has rank {rank}; it must be at most 4")


def fixed_shape(call: Call, name: str, shape: Shape) -> None:
    """Holds the shape of an argument.

    Raises:
        HalError: GENERAL_FAILURE naming the argument.
    """
    found = call.shape(name)
    call.require(found == shape, f"{name} has shape {list(found)}; it must be {list(shape)}")
