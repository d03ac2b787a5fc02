"""Invalid allocations (MEMDOM-01 to -24) and valid ones (MEMDOM-25)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.paths.buffers import Roles, allocate, buffer_role
from nnhal_tools.conformance.suites.memdom.bench import (
    OPERANDS,
    BufferBench,
    TestOperand,
    add_case,
    buffer_check,
    conv_case,
)
from nnhal_tools.conformance.vectors.case import Case

FOREIGN_MODEL = b"a model of another device"
INVALID_PROBABILITIES = (10.0, 0.0, -0.5)
"""Invalid probabilities, outside (0, 1]."""

REFUSAL_STATUSES = (ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE)

QUANTIZED = [operand for operand in OPERANDS if operand.is_quantized]


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
                    answer.status in REFUSAL_STATUSES, f"allocate ({bench.operand.type})", expected, got
                )

        return make_requests

    return register


@must_refuse("MEMDOM-01")
def _nothing(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield AllocationArguments()


@must_refuse("MEMDOM-02")
def _no_roles(bench: BufferBench) -> Iterator[AllocationArguments]:
    yield AllocationArguments([bench.prepare(conv_case(bench.operand))])


# ---- Roles ----------------------------------------------------------------------------------------------


def _for_roles(
    is_output: bool, models: Sequence[bytes], roles: Roles, dimensions: Sequence[int] = ()
) -> AllocationArguments:
    return AllocationArguments(models, () if is_output else roles, roles if is_output else (), dimensions)


MODEL = None
"""Placeholder for the prepared model CONV(Z, 1)."""

INVALID_ROLES: dict[tuple[str, str], tuple[Sequence[bytes | None], Sequence[Roles]]] = {
    ("MEMDOM-03", "MEMDOM-04"): ([b""], [[buffer_role(0, 0)]]),
    ("MEMDOM-05", "MEMDOM-06"): ([FOREIGN_MODEL], [[buffer_role(0, 0)]]),
    ("MEMDOM-07", "MEMDOM-08"): ([MODEL], [[buffer_role(1, 0)]]),
    ("MEMDOM-09", "MEMDOM-10"): ([MODEL], [[buffer_role(0, 1)]]),
    ("MEMDOM-11", "MEMDOM-12"): ([MODEL], [[buffer_role(0, 0, probability)] for probability in INVALID_PROBABILITIES]),
    ("MEMDOM-13", "MEMDOM-14"): ([MODEL], [[buffer_role(0, 0), buffer_role(0, 0)]]),
    ("MEMDOM-15", "MEMDOM-16"): ([MODEL, MODEL], [[buffer_role(0, 0), buffer_role(1, 0)]]),
}
"""Models and invalid sets of roles, by the check ids for input roles and for output roles."""


def _register_roles(id_: str, is_output: bool, models: Sequence[bytes | None], role_sets: Sequence[Roles]) -> None:
    @must_refuse(id_)
    def requests(bench: BufferBench) -> Iterator[AllocationArguments]:
        model = bench.prepare(conv_case(bench.operand)) if MODEL in models else b""
        handles = [model if handle is MODEL else handle for handle in models]
        for roles in role_sets:
            yield _for_roles(is_output, handles, roles)


for (_input_id, _output_id), (_models, _role_sets) in INVALID_ROLES.items():
    _register_roles(_input_id, False, _models, _role_sets)
    _register_roles(_output_id, True, _models, _role_sets)


# ---- Contradictory operands of two models ---------------------------------------------------------------

Variant = Callable[[TestOperand], TestOperand]

CONFLICTS: dict[str, tuple[Sequence[TestOperand], Callable[[TestOperand], Case], Variant]] = {
    "MEMDOM-17": (OPERANDS, conv_case, lambda operand: operand.with_other_type),
    "MEMDOM-18": (QUANTIZED, conv_case, lambda operand: replace(operand, scale=1.0)),
    "MEMDOM-19": (QUANTIZED, conv_case, lambda operand: replace(operand, zero_point=10)),
    "MEMDOM-20": (OPERANDS, add_case, lambda operand: replace(operand, shape=operand.shape[:-1])),
    "MEMDOM-21": (OPERANDS, conv_case, lambda operand: replace(operand, shape=(4, *operand.shape[1:]))),
}
"""Test operands, model, and operand of the second model, by check id."""


def _register_conflict(
    id_: str, operands: Sequence[TestOperand], case: Callable[[TestOperand], Case], variant: Variant
) -> None:
    @must_refuse(id_, operands)
    def requests(bench: BufferBench) -> Iterator[AllocationArguments]:
        models = [bench.prepare(case(bench.operand)), bench.prepare(case(variant(bench.operand)))]
        yield AllocationArguments(models, [buffer_role(0, 0), buffer_role(1, 0)])
        yield AllocationArguments(models, [buffer_role(0, 0)], [buffer_role(1, 0)])
        yield AllocationArguments(models, (), [buffer_role(0, 0), buffer_role(1, 0)])


for _id, _conflict in CONFLICTS.items():
    _register_conflict(_id, *_conflict)


# ---- Descriptors ----------------------------------------------------------------------------------------


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
