"""Built-in vectors as the checks of a device use them: prepared, with a request, and their outputs compared."""

from collections.abc import Iterator
from contextlib import contextmanager

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance import builtin
from tools.conformance.check import CheckFailed, Judge
from tools.conformance.gate import Supported, prepared_model
from tools.conformance.outputs import check_outputs, check_shapes
from tools.conformance.request import build
from tools.conformance.target import Executed, Target
from tools.conformance.vectors import Case


def named(name: str) -> Case:
    """A built-in vector."""
    (found,) = [case for case in builtin.cases() if case.name == name]
    return found


def taken(target: Target, case: Case) -> Case:
    """The same vector, whose model the device must take: for checks that prepare it in ways of their own.

    Raises:
        CheckFailed: PREP-01 or PREP-02.
        Skipped: X1.
    """
    Supported.ask(target, case.model(), Judge()).demand()
    return case


@contextmanager
def prepared(target: Target, name: str, *, unspecified: bool = False) -> Iterator[bytes]:
    """Handle of a built-in model; `unspecified`: with outputs of unspecified dimensions.

    Raises:
        CheckFailed, Skipped: it does not pass the gate.
    """
    model = prepared_model(target, named(name).model(unspecified_outputs=unspecified), Judge()).model
    try:
        yield model
    finally:
        target.release(model)


def request_of(name: str) -> types_pb2.Request:
    """The request of a built-in vector: inputs inline in pool 0, outputs in a ReturnedPool."""
    case = named(name)
    request, data = build(case.inputs, [output.array.nbytes for output in case.outputs])
    request.pools[0].pool.inline = data
    return request


def expect_right(judge: Judge, check: str, name: str, executed: Executed, what: str) -> None:
    """An execution must succeed and give what the vector expects.

    Raises:
        CheckFailed: it does not.
    """
    judge.expect(check, executed.answer.status == ErrorStatus.NONE, what, "NONE", executed.answer)
    try:
        check_shapes(judge, named(name), executed, check)
        check_outputs(judge, named(name), executed, check)
    except CheckFailed as failed:
        raise CheckFailed(check, f"{what}, {failed.stimulus}", failed.expected, failed.got) from None
