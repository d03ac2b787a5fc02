"""Lowering of a TFLite graph to a subgraph of NNAPI: operators become operations, or regions of the LiteRT extension.

First each operator is converted alone. If all have a converter that succeeds, that is the result. Otherwise the
operators are reordered into phases, and lowered again. Each phase of operators that NNAPI lacks is one region. So the
regions are few and large, and do not depend on each other in a cycle.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from nnhal import litert_extension
from nnhal.phases import divide_into_phases
from nnhal.tflite.call import CUSTOM_CONVERTERS, OperatorCall
from nnhal.tflite.errors import TfliteError, prefix_errors
from nnhal.tflite.fold import normalize
from nnhal.tflite.graph import Operator, TfliteGraph
from nnhal.tflite.operands import EXTENSION_PREFIX, ConstantStore, Operands
from nnhal.tflite.operators import CONVERTERS
from nnhal.tflite.report import ImportOutcome, OperatorReport
from nnhal.tflite.submodel import Boundary, extension_obstacle, write_submodel
from nnhal.tflite_schema.shapes.rule import Shape
from nnhal.types import Operation, Subgraph, operation_name

_EMPTY = Subgraph((), (), (), ())


@dataclass(slots=True)
class LoweredGraph:
    """A subgraph of NNAPI.

    Attributes:
        names: the origin of each operation.
        regions: number of regions of the LiteRT extension.
        problem: why the operators have no subgraph together although none is refused, or "".
    """

    subgraph: Subgraph
    names: list[str]
    reports: list[OperatorReport]
    regions: int = 0
    problem: str = ""


class ModelLowering:
    """Lowering of a model: its constants, and the subgraphs of IF and WHILE.

    Attributes:
        referenced: subgraphs other than the main one, in the order of their numbers in the NNAPI model.
    """

    def __init__(self, store: ConstantStore, *, extension: bool) -> None:
        self.store = store
        self.extension = extension
        self.referenced: list[Subgraph] = []

    def add_subgraph(self, caller: TfliteGraph, index: int, shapes: Sequence[Shape]) -> int:
        """Lower another subgraph of the file, and return its number among the referenced ones.

        `shapes` are those of its inputs.

        Raises:
            TfliteError: it cannot be lowered.
        """
        called = caller.called(index, shapes)
        with prefix_errors(f"subgraph {index}"):
            lowered = lower(normalize(called).graph, self)
            if refused := [report for report in lowered.reports if report.outcome == ImportOutcome.REFUSED]:
                raise TfliteError(f"{refused[0].operator}: {refused[0].reason}")
            if lowered.problem:
                raise TfliteError(lowered.problem)
        self.referenced.append(lowered.subgraph)
        return len(self.referenced) - 1


class _Phase(NamedTuple):
    """Operators that are converted one by one, or that form a region."""

    operators: tuple[Operator, ...]
    is_region: bool


@dataclass(slots=True)
class _Operations:
    """Operations in order, with the origin of each."""

    operations: list[Operation] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def add(self, operations: Sequence[Operation], name: str) -> None:
        self.operations += operations
        self.names += [name] * len(operations)


def lower(graph: TfliteGraph, model: ModelLowering) -> LoweredGraph:
    """Lower one graph, whose constants are folded.

    If an operator is refused, or there is another problem, the result has no operations.
    """
    before = model.store.mark(), len(model.referenced)
    operands = Operands(graph, model.store, range(len(graph.tensors)))
    _add_inputs(graph, operands)
    result = _Operations()
    reports = [_lower_alone(graph, operands, operator, model, result) for operator in graph.operators]
    others = {i for i, report in enumerate(reports) if report.outcome == ImportOutcome.EXTENSION}
    if any(report.outcome == ImportOutcome.REFUSED for report in reports):
        return LoweredGraph(_EMPTY, [], reports)
    try:
        if not others:
            return LoweredGraph(_subgraph(graph, operands, result), result.names, reports)
        model.store.rollback(before[0])
        del model.referenced[before[1] :]
        phases = [
            _Phase(tuple(graph.operators[i] for i in phase.operations), bool(phase.kind))
            for phase in divide_into_phases(graph.operators, [int(i in others) for i in range(len(graph.operators))])
        ]
        subgraph, names = _lower_phases(graph, phases, model)
    except TfliteError as error:
        return LoweredGraph(_EMPTY, [], reports, problem=str(error))
    return LoweredGraph(subgraph, names, reports, sum(phase.is_region for phase in phases))


def _lower_alone(
    graph: TfliteGraph, operands: Operands, operator: Operator, model: ModelLowering, result: "_Operations"
) -> OperatorReport:
    """Convert an operator, and add its operations to the result. Without a converter, it belongs into a region."""
    mark, referenced = operands.mark(), len(model.referenced)
    try:
        operations = _convert(graph, operands, operator, model)
    except TfliteError as error:
        operands.rollback(mark)
        del model.referenced[referenced:]
        if damage := _damage(operands, operator):
            return OperatorReport(operator, ImportOutcome.REFUSED, (), damage)
        if not model.extension:
            return OperatorReport(operator, ImportOutcome.REFUSED, (), str(error))
        if obstacle := extension_obstacle(graph, operator):
            return OperatorReport(operator, ImportOutcome.REFUSED, (), f"{error}; {obstacle}")
        return OperatorReport(operator, ImportOutcome.EXTENSION, (), str(error))
    result.add(operations, str(operator))
    outcome = ImportOutcome.DIRECT if len(operations) == 1 else ImportOutcome.COMPOSED
    return OperatorReport(operator, outcome, tuple(operation_name(operation.type) for operation in operations))


def _damage(operands: Operands, operator: Operator) -> str:
    """Mark the outputs of an operator without operations as written. Return why the graph is damaged there, or ""."""
    problem = ""
    try:
        operands.require_values(index for index in operator.inputs if index >= 0)
    except TfliteError as error:
        problem = str(error)
    try:
        for index in operator.outputs:
            operands.mark_written(index)
    except TfliteError as error:
        problem = problem or str(error)
    return problem


def _convert(graph: TfliteGraph, operands: Operands, operator: Operator, model: ModelLowering) -> list[Operation]:
    """Return the NNAPI operations of an operator. Raise TfliteError if NNAPI has no counterpart."""
    if operator.unsupported:
        raise TfliteError(operator.unsupported)
    for index in (*operator.inputs, *operator.outputs):
        if index in operands.wide:
            raise TfliteError(f"{graph.tensors[index]} is int64 with values that may exceed 32 bits")
    custom = CUSTOM_CONVERTERS.get(operator.custom_name)
    converter = custom or CONVERTERS.get(operator.code)
    if converter is None:
        raise TfliteError("has no converter to NNAPI")
    call = OperatorCall(graph, operands, operator, model.add_subgraph)
    converter(call)
    return call.operations


def _lower_phases(graph: TfliteGraph, phases: Sequence[_Phase], model: ModelLowering) -> tuple[Subgraph, list[str]]:
    direct = [operator for phase in phases if not phase.is_region for operator in phase.operators]
    nnapi_tensors = {index for operator in direct for index in (*operator.inputs, *operator.outputs)}
    operands = Operands(graph, model.store, nnapi_tensors)
    _add_inputs(graph, operands)
    result = _Operations()
    for number, phase in enumerate(phases):
        if phase.is_region:
            later = {index for p in phases[number + 1 :] for operator in p.operators for index in operator.inputs}
            name = "region of " + ", ".join(str(operator) for operator in phase.operators)
            result.add([_convert_region(graph, operands, phase.operators, later)], name)
            continue
        for operator in phase.operators:
            with prefix_errors(str(operator)):
                result.add(_convert(graph, operands, operator, model), str(operator))
    return _subgraph(graph, operands, result), result.names


def _convert_region(
    graph: TfliteGraph, operands: Operands, operators: Sequence[Operator], later: Collection[int]
) -> Operation:
    """Return the operation of a region. `later` are the tensors that later operators read."""
    written = dict.fromkeys(index for operator in operators for index in operator.outputs)
    read = dict.fromkeys(index for operator in operators for index in operator.inputs if index >= 0)
    outside = [i for i in read if i not in written and not graph.tensors[i].is_constant]
    inputs = [i for i in outside if not graph.tensors[i].is_variable]
    outputs = [i for i in written if i in later or i in graph.outputs]
    numbers = [operands.read_boundary(i) for i in inputs], [operands.write_boundary(i) for i in outputs]
    for index in written:
        if index not in outputs:
            operands.mark_written(index)
    boundaries = ([Boundary(i, operands.is_int32(i)) for i in group] for group in (inputs, outputs))
    submodel = operands.submodel(write_submodel(graph, operators, *boundaries))
    return Operation(EXTENSION_PREFIX << 16 | litert_extension.SUBMODEL, (submodel, *numbers[0]), tuple(numbers[1]))


def _add_inputs(graph: TfliteGraph, operands: Operands) -> None:
    """Add the operands of the inputs first. One whose type only a region supports is added later."""
    for index in graph.inputs:
        with suppress(TfliteError):
            operands.read_boundary(index)


def _subgraph(graph: TfliteGraph, operands: Operands, result: "_Operations") -> Subgraph:
    inputs = tuple(operands.read_boundary(index) for index in graph.inputs)
    outputs = tuple(operands.read_boundary(index) for index in graph.outputs)
    return Subgraph(tuple(operands.all), tuple(result.operations), inputs, outputs)
