"""Import of a file: the stages in order, and their report."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from nnhal.tflite.errors import TfliteError
from nnhal.tflite.fold import normalize
from nnhal.tflite.graph import TfliteGraph
from nnhal.tflite.lower import ModelLowering, lower
from nnhal.tflite.model_metadata import parse_normalizations
from nnhal.tflite.operands import ConstantStore
from nnhal.tflite.reader import read
from nnhal.tflite.report import ImportOutcome, ImportReport, OperatorReport
from nnhal.tflite.shapes import Shapes
from nnhal.tflite.variables import expose_states, expose_variables
from nnhal.types import Bytes, Model, ModelState


def import_model(
    data: Bytes,
    *,
    extension: bool,
    shapes: Shapes,
    subgraph: int | str = 0,
    folder: Path | None = None,
    stateful: bool = False,
) -> tuple[Model | None, ImportReport]:
    """Import a file: return the report, and the model unless an operator is refused or the report has a problem.

    `shapes` are those of inputs, in place of those of the file. With `extension`, operators that NNAPI lacks become
    regions of the LiteRT extension. `subgraph` is the number of the subgraph that becomes the model, or the key of its
    signature. `folder` has the files to which the file refers. If `stateful`, the states of recurrent layers become
    inputs and outputs, too; otherwise, they are zeros before each execution.

    Raises:
        TfliteError: the file is damaged, or it does not have the signature or an input of the shape.
    """
    graphs = read(data, folder)
    number = subgraph if isinstance(subgraph, int) else _number_of(graphs, subgraph)
    source = graphs[number] if isinstance(subgraph, int) else _with_names(graphs[number], subgraph)
    graphs = (*graphs[:number], source, *graphs[number + 1 :])
    model, report = import_graphs(graphs, number, extension=extension, shapes=shapes, stateful=stateful)
    if model is not None and number == 0:  # the metadata describes the main subgraph
        model = replace(model, normalizations=parse_normalizations(data.data, len(model.main.input_indexes)))
    return model, report


def import_graphs(
    graphs: Sequence[TfliteGraph], number: int = 0, *, extension: bool, shapes: Shapes, stateful: bool = False
) -> tuple[Model | None, ImportReport]:
    """Import one of the subgraphs of a file, like `import_model`."""
    source = graphs[number]
    problems: list[str] = []
    try:
        graph, state_operators, variables = expose_variables(graphs, number)
    except TfliteError as error:
        problems.append(str(error))
        graph, state_operators, variables = source, [], []
    problems += _problems_of_inputs_and_outputs(graph)
    folded = normalize(graph, shapes)
    graph = folded.graph
    if stateful:
        graph, states = expose_states(graph)
        variables += states
    if not problems and not graph.operators:
        problems.append("has no operators that depend on its inputs")
    store = ConstantStore(source.data)
    lowering = ModelLowering(store, extension=extension)
    lowered = lower(graph, lowering)
    reports = [
        *lowered.reports,
        *(OperatorReport(operator, ImportOutcome.STATE) for operator in state_operators),
        *(OperatorReport(operator, ImportOutcome.FOLDED) for operator in folded.evaluated),
        *(OperatorReport(operator, ImportOutcome.UNREAD) for operator in folded.unread),
    ]
    reports.sort(key=lambda report: (report.operator.index < 0, report.operator.index))
    problem = next(filter(None, (*problems, lowered.problem)), "")
    report = ImportReport(reports, graph, lowered.regions, problem)
    if report.refusals():
        return None, report
    outputs = tuple(source.tensors[index].name for index in source.outputs)
    model = Model(
        lowered.subgraph,
        tuple(lowering.referenced),
        operand_values=store.operand_values,
        pools=store.pools(),
        extension_name_to_prefix=store.extensions,
        input_names=tuple(graph.tensors[index].name for index in graph.inputs),
        output_names=outputs + tuple(variable.name for variable in variables),
        operation_names=tuple(lowered.names),
        states=tuple(
            ModelState(variable.name, len(source.inputs) + i, len(source.outputs) + i, variable.initial)
            for i, variable in enumerate(variables)  # they follow the inputs and outputs of the file
        ),
    )
    return model, report


def _number_of(graphs: Sequence[TfliteGraph], key: str) -> int:
    """Return the number of the subgraph that has a signature."""
    numbers = {signature.key: number for number, graph in enumerate(graphs) for signature in graph.signatures}
    if key not in numbers:
        raise TfliteError(f"has no signature {key!r}; there are {', '.join(map(repr, numbers)) or 'none'}")
    return numbers[key]


def _with_names(graph: TfliteGraph, key: str) -> TfliteGraph:
    """Return a subgraph whose inputs and outputs have the names of a signature."""
    signature = next(each for each in graph.signatures if each.key == key)
    names = {**signature.outputs, **signature.inputs}
    return replace(graph, tensors=tuple(replace(t, name=names.get(t.index, t.name)) for t in graph.tensors))


def _problems_of_inputs_and_outputs(graph: TfliteGraph) -> Iterator[str]:
    """Yield why no NNAPI model can represent a graph (V-SUBGRAPH-02, 03)."""
    for kind, indexes in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        if not indexes:
            yield f"has no {kind}"
    if len(set(graph.inputs)) != len(graph.inputs):
        yield "has a tensor twice among its inputs"
    for index in graph.inputs:
        if graph.tensors[index].is_constant:
            yield f"{graph.tensors[index]} is both an input and a constant"
