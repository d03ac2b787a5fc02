"""Mutations of the order of operations and of the writers of operands (VALMODEL-04, -05, -12, -17, -19)."""

from collections.abc import Iterator

from nnhal.types import OperandLifeTime
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.mutations import Edit, ValidModel, add_temporary_like, mutation

_WRITTEN = (OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT)


@mutation("VALMODEL-04")
def operation_before_producers(model: ValidModel) -> Iterator[Edit]:
    """Move each operation that reads the output of another one to the front."""
    for n, operation in enumerate(model.operations):
        if any(int(model.operands[i].lifetime) in _WRITTEN for i in operation.inputs):
            yield Edit(f"{model.operation_name(n)} moved to the front", lambda copy, n=n: _move(copy, n, 0))  # type: ignore[misc]


@mutation("VALMODEL-05")
def operation_after_consumers(model: ValidModel) -> Iterator[Edit]:
    """Move each operation whose output another one reads to the end."""
    last = len(model.operations) - 1
    for n, operation in enumerate(model.operations):
        if any(model.read_counts[i] for i in operation.outputs):
            yield Edit(f"{model.operation_name(n)} moved to the end", lambda copy, n=n: _move(copy, n, last))  # type: ignore[misc]


def _move(model: types_pb2.Model, source: int, target: int) -> None:
    operations = list(model.main.operations)
    operations.insert(target, operations.pop(source))
    main = types_pb2.Subgraph(operations=operations)
    model.main.ClearField("operations")
    model.main.operations.MergeFrom(main.operations)


@mutation("VALMODEL-12")
def operand_written_twice(model: ValidModel) -> Iterator[Edit]:
    """Append a copy of each operation that writes one of the same outputs again.

    The other outputs of the copy are new temporaries.
    """
    for n, operation in enumerate(model.operations):
        for k in range(len(operation.outputs)):
            description = f"output {k} of {model.operation_name(n)} written again"
            yield Edit(description, lambda copy, n=n, k=k: _write_again(copy.main, n, k))  # type: ignore[misc]


def _write_again(main: types_pb2.Subgraph, operation: int, output: int) -> None:
    copy = main.operations.add()
    copy.CopyFrom(main.operations[operation])
    copy.outputs[:] = [i if k == output else add_temporary_like(main, i) for k, i in enumerate(copy.outputs)]


@mutation("VALMODEL-17")
def operand_never_written(model: ValidModel) -> Iterator[Edit]:
    """Redirect each output that an operation reads to a new temporary."""
    for n, operation in enumerate(model.operations):
        for k, i in enumerate(operation.outputs):
            if model.read_counts[i]:
                description = f"output {k} of {model.operation_name(n)} redirected"
                yield Edit(description, lambda copy, n=n, k=k: _redirect(copy.main, n, k))  # type: ignore[misc]


def _redirect(main: types_pb2.Subgraph, operation: int, output: int) -> None:
    outputs = main.operations[operation].outputs
    outputs[output] = add_temporary_like(main, outputs[output])


@mutation("VALMODEL-19")
def removed_operation(model: ValidModel) -> Iterator[Edit]:
    """Remove each operation."""
    for n in range(len(model.operations)):
        yield Edit(f"{model.operation_name(n)} removed", lambda copy, n=n: copy.main.operations.pop(n))  # type: ignore[misc]
