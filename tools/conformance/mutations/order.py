"""Mutations of the order of operations, and of who writes what (VALMODEL-04, -05, -12, -17, -19)."""

from collections.abc import Iterator

from nnhal.types import OperandLifeTime
from nnhal.v1 import types_pb2
from tools.conformance.mutations import Base, Edit, add_temporary_like, mutation

_WRITTEN = (OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT)


@mutation("VALMODEL-04")
def operation_before_its_inputs(base: Base) -> Iterator[Edit]:
    """Moves each operation that reads what another writes to the front."""
    for n, operation in enumerate(base.operations):
        if any(int(base.operands[i].lifetime) in _WRITTEN for i in operation.inputs):
            yield Edit(f"{base.operation_name(n)} moved to the front", lambda model, n=n: _move(model, n, 0))  # type: ignore[misc]


@mutation("VALMODEL-05")
def operation_after_its_readers(base: Base) -> Iterator[Edit]:
    """Moves each operation whose output another reads to the end."""
    last = len(base.operations) - 1
    for n, operation in enumerate(base.operations):
        if any(base.consumers[i] for i in operation.outputs):
            yield Edit(f"{base.operation_name(n)} moved to the end", lambda model, n=n: _move(model, n, last))  # type: ignore[misc]


def _move(model: types_pb2.Model, source: int, target: int) -> None:
    operations = list(model.main.operations)
    operations.insert(target, operations.pop(source))
    main = types_pb2.Subgraph(operations=operations)
    model.main.ClearField("operations")
    model.main.operations.MergeFrom(main.operations)


@mutation("VALMODEL-12")
def operand_written_twice(base: Base) -> Iterator[Edit]:
    """Appends a copy of each operation that writes one of its outputs again; its other outputs are new temporaries."""
    for n, operation in enumerate(base.operations):
        for k in range(len(operation.outputs)):
            place = f"output {k} of {base.operation_name(n)} written again"
            yield Edit(place, lambda model, n=n, k=k: _write_again(model.main, n, k))  # type: ignore[misc]


def _write_again(main: types_pb2.Subgraph, operation: int, kept: int) -> None:
    copy = main.operations.add()
    copy.CopyFrom(main.operations[operation])
    copy.outputs[:] = [i if k == kept else add_temporary_like(main, i) for k, i in enumerate(copy.outputs)]


@mutation("VALMODEL-17")
def operand_never_written(base: Base) -> Iterator[Edit]:
    """Redirects each output that is read to a new temporary."""
    for n, operation in enumerate(base.operations):
        for k, i in enumerate(operation.outputs):
            if base.consumers[i]:
                place = f"output {k} of {base.operation_name(n)} redirected"
                yield Edit(place, lambda model, n=n, k=k: _redirect(model.main, n, k))  # type: ignore[misc]


def _redirect(main: types_pb2.Subgraph, operation: int, output: int) -> None:
    outputs = main.operations[operation].outputs
    outputs[output] = add_temporary_like(main, outputs[output])


@mutation("VALMODEL-19")
def operation_removed(base: Base) -> Iterator[Edit]:
    """Removes each operation."""
    for n in range(len(base.operations)):
        yield Edit(f"{base.operation_name(n)} removed", lambda model, n=n: model.main.operations.pop(n))  # type: ignore[misc]
