"""What a prepared model brings with it (NNHAL-23)."""

from nnhal.v1 import types_pb2
from tools.conformance.check import Judge
from tools.conformance.gate import prepared_model
from tools.conformance.registry import check
from tools.conformance.samples import named
from tools.conformance.target import Target


@check("NNHAL-23")
def placement_and_operands(target: Target, judge: Judge) -> None:
    """Of a model with several subgraphs and one with several operations."""
    for name in ("network", "while_5_turns", "topk_float"):
        model = named(name).model()
        notify = prepared_model(target, model, Judge()).callbacks[0]
        wanted = list(_operations(model))
        got = [(o.subgraph, o.operation, int(o.type)) for o in notify.placement.operations]
        judge.expect("NNHAL-23", got == wanted, f"placement of {name}", str(wanted), got)
        backends = [o.backend for o in notify.placement.operations]
        judge.expect("NNHAL-23", all(backends), f"placement of {name}", "a backend for each operation", backends)
        covered = sorted((p.subgraph, i) for p in notify.placement.partitions for i in p.operations)
        pairs = [(subgraph, operation) for subgraph, operation, _ in wanted]
        judge.expect("NNHAL-23", covered == pairs, f"partitions of {name}", "each operation once", covered)
        for what, indexes, operands in (
            ("inputs", model.main.input_indexes, notify.inputs),
            ("outputs", model.main.output_indexes, notify.outputs),
        ):
            expected = [_shape_and_type(model.main.operands[i]) for i in indexes]
            told = [_shape_and_type(operand) for operand in operands]
            judge.expect("NNHAL-23", told == expected, f"{what} of {name}", str(expected), told)
        target.release(notify.prepared_model)


def _operations(model: types_pb2.Model) -> "list[tuple[int, int, int]]":
    """Subgraph, number and type of every operation, main's first."""
    graphs = (model.main, *model.referenced)
    return [
        (s, n, int(operation.type)) for s, graph in enumerate(graphs) for n, operation in enumerate(graph.operations)
    ]


def _shape_and_type(operand: types_pb2.Operand) -> tuple[int, tuple[int, ...], float, int]:
    return int(operand.type), tuple(operand.dimensions), operand.scale, operand.zero_point
