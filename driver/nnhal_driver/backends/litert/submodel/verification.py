"""Verification of sub-models before LiteRT sees them.

LiteRT trusts a model: a wrong index, shape or option makes it read out of bounds, divide by zero or abort the process.
`verify` accepts only operators with a rule, only shapes that the kernels compute from constants, and only work that
ends: a WHILE must count up to a constant.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from nnhal.tflite_schema.shapes.rule import RULES as SHAPE_RULES
from nnhal.tflite_schema.shapes.rule import Shape, ShapeCall, ShapeError, infer_shapes
from nnhal.types import AnyArray
from nnhal_driver.backends.litert.submodel.data_flow import check_data_flow
from nnhal_driver.backends.litert.submodel.limits import SubModelLimits
from nnhal_driver.backends.litert.submodel.model import InvalidSubModel, SubModel, SubModelTensor, tensor_path
from nnhal_driver.backends.litert.submodel.operator_check import QUANTIZED_TYPES, OperatorCheck, OperatorRule
from nnhal_driver.backends.litert.submodel.rules import RULES
from nnhal_driver.backends.litert.submodel.tensor_check import check_tensor

_DEFAULT_LIMITS = SubModelLimits()


def verify(model: SubModel, limits: SubModelLimits = _DEFAULT_LIMITS) -> None:
    """Check that LiteRT can run a sub-model safely, and within limits.

    Raises:
        InvalidSubModel: it cannot. The message names the operator or the field.
    """
    graphs = model.graphs
    _require_at_most("subgraphs", len(graphs), limits.subgraphs)
    _require_at_most("tensors", sum(len(graph.tensors) for graph in graphs), limits.tensors)
    _require_at_most("operators", sum(len(graph.operators) for graph in graphs), limits.operators)
    if not graphs[0].operators:
        raise InvalidSubModel("subgraph 0: there is no operator")
    for number, graph in enumerate(graphs):
        for index, tensor in enumerate(graph.tensors):
            check_tensor(tensor, tensor_path(number, index), limits)
    live_bytes = sum(check_data_flow(graph, number) for number, graph in enumerate(graphs))
    _require_at_most("live_bytes", live_bytes, limits.live_bytes)
    checks = [_check_operators(model, number, limits) for number in range(len(graphs))]
    for check in itertools.chain.from_iterable(checks):
        for step in check.deferred:
            step()
    _CallGraph(checks, limits).check()


def _require_at_most(name: str, value: int, limit: int) -> None:
    if value > limit:
        raise InvalidSubModel(f"the sub-model needs {value} {name}; at most {limit} are supported")


def _check_operators(model: SubModel, number: int, limits: SubModelLimits) -> list[OperatorCheck]:
    checks = []
    for index, operator in enumerate(model.graphs[number].operators):
        check = OperatorCheck(model, number, index, operator, limits)
        _check_operator(check, RULES[operator.kind])
        checks.append(check)
    return checks


def _check_operator(check: OperatorCheck, rule: OperatorRule) -> None:
    if not check.outputs:
        check.fail("outputs is empty; expected at least one tensor")
    _check_signature(check, rule)
    operator = check.operator
    if operator.options_type != rule.options and not (not operator.options_type and rule.optional_options):
        check.fail(f"options are of type {operator.options_type or 'none'}; expected {rule.options or 'none'}")
    _check_intermediates(check, rule)
    for index, tensor in enumerate(check.inputs):
        if tensor is not None:
            _check_scales(check, rule, f"input {index}", tensor, index in rule.per_channel)
    for index, tensor in enumerate(check.outputs):
        _check_scales(check, rule, f"output {index}", tensor, per_channel=False)
    rule.check(check)
    if operator.kind in SHAPE_RULES:
        _check_output_shapes(check)


def _check_output_shapes(check: OperatorCheck) -> None:
    """Check that the outputs are declared with the shapes that the kernel computes."""
    try:
        inferred = infer_shapes(_RegionCall(check))
    except ShapeError as error:
        check.fail(str(error))
    for index, shape in enumerate(inferred):
        check.output_shape(shape, index)


class _RegionCall(ShapeCall):
    """An operator of a region, for the rules of shapes."""

    def __init__(self, check: OperatorCheck) -> None:
        super().__init__(check.operator.kind, len(check.inputs), [tensor.shape for tensor in check.outputs])
        self._check = check

    def shape(self, position: int) -> Shape:
        return self._check.input(position).shape

    def has(self, position: int) -> bool:
        return self._check.optional(position) is not None

    def array(self, position: int) -> AnyArray:
        tensor = self._check.input(position)
        if tensor.data is None:
            raise ValueError(f"input {position} is not constant; its value must be known")
        return tensor.values()

    def option(self, name: str, default: Any) -> Any:
        return self._check.operator.options.get(name, default)


def _check_intermediates(check: OperatorCheck, rule: OperatorRule) -> None:
    intermediates, tensors = check.operator.intermediates, check.model.graphs[check.graph].tensors
    if intermediates and len(intermediates) != rule.intermediates:
        check.fail(f"intermediates has {len(intermediates)} tensors; expected {rule.intermediates or 'none'}")
    for index in intermediates:
        if not 0 <= index < len(tensors):
            check.fail(f"intermediates has tensor {index} of {len(tensors)}")


def _check_signature(check: OperatorCheck, rule: OperatorRule) -> None:
    inputs = [None if tensor is None else tensor.type for tensor in check.inputs]
    outputs = [tensor.type for tensor in check.outputs]
    if any(signature.matches(inputs, outputs) for signature in rule.signatures):
        return
    _check_counts(check, rule)
    check.fail(f"types ({', '.join(map(str, inputs))}) -> ({', '.join(outputs)}) are not supported")


def _check_counts(check: OperatorCheck, rule: OperatorRule) -> None:
    """Check the number of inputs and of outputs."""
    inputs, outputs = len(check.inputs), len(check.outputs)
    low = min(signature.min_inputs for signature in rule.signatures)
    highest = [signature.max_inputs for signature in rule.signatures]
    high = None if None in highest else max(count for count in highest if count is not None)
    if inputs < low or (high is not None and inputs > high):
        check.fail(f"inputs has {inputs} tensors; expected {low} to {'any number' if high is None else high}")
    counts = [signature.outputs for signature in rule.signatures]
    if None not in counts and outputs not in counts:
        check.fail(f"outputs has {outputs} tensors; expected {' or '.join(map(str, sorted(set(counts), key=str)))}")


def _check_scales(
    check: OperatorCheck, rule: OperatorRule, name: str, tensor: SubModelTensor, per_channel: bool
) -> None:
    quantization = tensor.quantization
    if quantization is None:
        if rule.quantized and tensor.type in QUANTIZED_TYPES:
            check.fail(f"{name} has type {tensor.type} but no scale")
    elif not per_channel and len(quantization.scales) != 1:
        check.fail(f"{name} has {len(quantization.scales)} scales; expected 1")


class _CallGraph:
    """Subgraphs and the operators IF and WHILE that call them, with the work of one execution of each."""

    def __init__(self, checks: Sequence[Sequence[OperatorCheck]], limits: SubModelLimits) -> None:
        self._checks = checks
        self._limits = limits
        self._totals: dict[int, _Total | None] = {}

    def check(self) -> None:
        """Check that calls end, and that the work is within the limits."""
        total = self._total(0)
        unused = set(range(len(self._checks))) - set(self._totals)
        if unused:
            raise InvalidSubModel(f"subgraph {min(unused)}: no operator calls it")
        _require_at_most("levels of IF and WHILE", total.depth, self._limits.depth)
        _require_at_most("operator executions", total.executions, self._limits.executions)
        _require_at_most("steps of work", total.work, self._limits.work)

    def _total(self, number: int) -> "_Total":
        """Return the total of a subgraph, with all that it calls."""
        self._totals[number] = None
        checks = self._checks[number]
        work, executions, depth = sum(check.work for check in checks), len(checks), 0
        for check in checks:
            for called, times in check.calls:
                inner = self._totals[called] if called in self._totals else self._total(called)
                if inner is None:
                    check.fail(f"subgraph {called} calls itself")
                work += times * inner.work
                executions += times * inner.executions
                depth = max(depth, inner.depth + 1)
        self._totals[number] = total = _Total(work, executions, depth)
        return total


@dataclass(frozen=True, slots=True)
class _Total:
    """Work of one execution of a subgraph, the operators that it runs, and the levels of IF and WHILE."""

    work: int
    executions: int
    depth: int
