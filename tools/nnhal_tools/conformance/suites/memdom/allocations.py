"""Invalid allocations (MEMDOM-01 to -24) and valid ones (MEMDOM-25)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.paths.buffers import allocate, buffer_role
from nnhal_tools.conformance.suites.memdom.bench import (
    OPERANDS,
    BufferBench,
    TestOperand,
    add_case,
    buffer_check,
    conv_case,
)

FOREIGN_MODEL = b"a model of another device"
INVALID_PROBABILITIES = (10.0, 0.0, -0.5)
"""Invalid probabilities, outside (0, 1]."""

REFUSAL_STATUSES = (ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE)

QUANTIZED = [operand for operand in OPERANDS if operand.is_quantized]

Roles = Sequence[types_pb2.BufferRole]


@dataclass(frozen=True)
class AllocationArguments:
    """Arguments of an allocation; see `allocate`."""

    models: Sequence[bytes] = ()
    inputs: Roles = ()
    outputs: Roles = ()
    dimensions: Sequence[int] = ()


RequestFactory = Callable[[BufferBench], Iterator[AllocationArguments]]


def must_refuse(id_: str, operands: Sequence[TestOperand] = OPERANDS) -> Callable[[RequestFactory], RequestFactory]:
    """Register a check that allocations are refused."""

    def register(make_requests: RequestFactory) -> RequestFactory:
        @buffer_check(id_, operands)
        def body(bench: BufferBench) -> None:
            for request in make_requests(bench):
                answer, buffer = allocate(
                    bench.target, request.models, request.inputs, request.outputs, request.dimensions
                )
                got = f"{answer}, {buffer}" if buffer else answer
                expected = "INVALID_ARGUMENT or GENERAL_FAILURE"
                bench.recorder.expect(
                    id_, answer.status in REFUSAL_STATUSES, f"allocate ({bench.operand.type})", expected, got
                )

        return make_requests

    return register


@must_refuse("MEMDOM-01")
def _nothing(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield AllocationArguments()


@must_refuse("MEMDOM-02")
def _no_roles(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield AllocationArguments([bench.prepare(conv_case(bench.operand))])


def _for_roles(
    is_output: bool, models: Sequence[bytes], roles: Roles, dimensions: Sequence[int] = ()
) -> AllocationArguments:
    return AllocationArguments(models, () if is_output else roles, roles if is_output else (), dimensions)


def _for_inputs_and_outputs(
    input_id: str, output_id: str
) -> Callable[[Callable[[BufferBench, bool], Iterator[AllocationArguments]]], None]:
    """Register a check for input roles, and the same for output roles."""

    def register(make_requests: Callable[[BufferBench, bool], Iterator[AllocationArguments]]) -> None:
        for id_, is_output in ((input_id, False), (output_id, True)):
            must_refuse(id_)(lambda bench, is_output=is_output: make_requests(bench, is_output))  # type: ignore[misc]

    return register


@_for_inputs_and_outputs("MEMDOM-03", "MEMDOM-04")
def _null_model(bench: BufferBench, is_output: bool) -> Iterator[AllocationArguments]:
    yield _for_roles(is_output, [b""], [buffer_role(0, 0)])


@_for_inputs_and_outputs("MEMDOM-05", "MEMDOM-06")
def _foreign_model(bench: BufferBench, is_output: bool) -> Iterator[AllocationArguments]:
    yield _for_roles(is_output, [FOREIGN_MODEL], [buffer_role(0, 0)])


@_for_inputs_and_outputs("MEMDOM-07", "MEMDOM-08")
def _model_index(bench: BufferBench, is_output: bool) -> Iterator[AllocationArguments]:
    yield _for_roles(is_output, [bench.prepare(conv_case(bench.operand))], [buffer_role(1, 0)])


@_for_inputs_and_outputs("MEMDOM-09", "MEMDOM-10")
def _io_index(bench: BufferBench, is_output: bool) -> Iterator[AllocationArguments]:
    yield _for_roles(is_output, [bench.prepare(conv_case(bench.operand))], [buffer_role(0, 1)])


@_for_inputs_and_outputs("MEMDOM-11", "MEMDOM-12")
def _probability(bench: BufferBench, is_output: bool) -> Iterator[AllocationArguments]:
    model = bench.prepare(conv_case(bench.operand))
    for probability in INVALID_PROBABILITIES:
        yield _for_roles(is_output, [model], [buffer_role(0, 0, probability)])


@_for_inputs_and_outputs("MEMDOM-13", "MEMDOM-14")
def _role_twice(bench: BufferBench, is_output: bool) -> Iterator[AllocationArguments]:
    yield _for_roles(is_output, [bench.prepare(conv_case(bench.operand))], [buffer_role(0, 0), buffer_role(0, 0)])


@_for_inputs_and_outputs("MEMDOM-15", "MEMDOM-16")
def _role_twice_by_two_indexes(bench: BufferBench, is_output: bool) -> Iterator[AllocationArguments]:
    model = bench.prepare(conv_case(bench.operand))
    yield _for_roles(is_output, [model, model], [buffer_role(0, 0), buffer_role(1, 0)])


def _conflicts(first: bytes, second: bytes) -> Iterator[AllocationArguments]:
    """Yield the three role sets with contradictory operands of two models."""
    models = [first, second]
    yield AllocationArguments(models, [buffer_role(0, 0), buffer_role(1, 0)])
    yield AllocationArguments(models, [buffer_role(0, 0)], [buffer_role(1, 0)])
    yield AllocationArguments(models, (), [buffer_role(0, 0), buffer_role(1, 0)])


@must_refuse("MEMDOM-17")
def _types(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield from _conflicts(
        bench.prepare(conv_case(bench.operand)), bench.prepare(conv_case(bench.operand.with_other_type))
    )


@must_refuse("MEMDOM-18", QUANTIZED)
def _scales(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield from _conflicts(
        bench.prepare(conv_case(bench.operand)), bench.prepare(conv_case(replace(bench.operand, scale=1.0)))
    )


@must_refuse("MEMDOM-19", QUANTIZED)
def _zero_points(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield from _conflicts(
        bench.prepare(conv_case(bench.operand)), bench.prepare(conv_case(replace(bench.operand, zero_point=10)))
    )


@must_refuse("MEMDOM-20")
def _ranks(bench: BufferBench) -> Iterator[AllocationArguments]:
    lower = replace(bench.operand, shape=bench.operand.shape[:-1])
    yield from _conflicts(bench.prepare(add_case(bench.operand)), bench.prepare(add_case(lower)))


@must_refuse("MEMDOM-21")
def _dimensions(bench: BufferBench) -> Iterator[AllocationArguments]:
    longer = replace(bench.operand, shape=(4, *bench.operand.shape[1:]))
    yield from _conflicts(bench.prepare(conv_case(bench.operand)), bench.prepare(conv_case(longer)))


def _descriptors(bench: BufferBench, dimensions: Sequence[int]) -> Iterator[AllocationArguments]:
    model = bench.prepare(conv_case(bench.operand))
    for is_output in (False, True):
        yield _for_roles(is_output, [model], [buffer_role(0, 0)], dimensions)


@must_refuse("MEMDOM-22")
def _rank_of_descriptor(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield from _descriptors(bench, bench.operand.shape[:-1])


@must_refuse("MEMDOM-23")
def _dimensions_of_descriptor(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield from _descriptors(bench, (4, *bench.operand.shape[1:]))


@must_refuse("MEMDOM-24")
def _dimensions_of_a_scalar(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield AllocationArguments([bench.prepare(add_case(bench.operand))], [buffer_role(0, 2)], dimensions=[1])


@buffer_check("MEMDOM-25")
def valid_allocation(bench: BufferBench) -> None:
    """Check valid allocations: input, output, both, unknown shape, and dimensions that complete the shape."""
    model, open_ = bench.prepare(conv_case(bench.operand)), bench.prepare(conv_case(bench.operand.with_unknown_batch))
    bench.allocate([model], [buffer_role(0, 0)])
    bench.allocate([model], (), [buffer_role(0, 0)])
    bench.allocate([model], [buffer_role(0, 0)], [buffer_role(0, 0)])
    bench.allocate([open_], [buffer_role(0, 0)], [buffer_role(0, 0)])
    bench.allocate([open_], [buffer_role(0, 0)], [buffer_role(0, 0)], bench.operand.shape)
    bench.allocate([model, open_], [buffer_role(0, 0), buffer_role(1, 0)], [buffer_role(0, 0, 0.5)])
