"""Allocations that must be refused (MEMDOM-01 to -24), and those that must not (MEMDOM-25)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.paths.buffers import allocate, role
from tools.conformance.suites.memdom.bench import OPERANDS, Bench, Operand, add, conv, memdom

STRANGER = b"a model of another device"
IMPOSSIBLE = (10.0, 0.0, -0.5)
"""Probabilities outside of (0, 1]."""

REFUSED = (ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE)

QUANTISED = [z for z in OPERANDS if z.is_quantised]

Roles = Sequence[types_pb2.BufferRole]


@dataclass(frozen=True)
class Asked:
    """What is asked for; see `allocate`."""

    models: Sequence[bytes] = ()
    inputs: Roles = ()
    outputs: Roles = ()
    dimensions: Sequence[int] = ()


Asking = Callable[[Bench], Iterator[Asked]]


def refused(id_: str, operands: Sequence[Operand] = OPERANDS) -> Callable[[Asking], Asking]:
    """Registers allocations, each of which must be refused."""

    def register(asking: Asking) -> Asking:
        @memdom(id_, operands)
        def body(bench: Bench) -> None:
            for asked in asking(bench):
                answer, made = allocate(bench.target, asked.models, asked.inputs, asked.outputs, asked.dimensions)
                got = f"{answer}, {made}" if made else answer
                expected = "INVALID_ARGUMENT or GENERAL_FAILURE"
                bench.judge.expect(id_, answer.status in REFUSED, f"allocate ({bench.z.type})", expected, got)

        return asking

    return register


@refused("MEMDOM-01")
def _nothing(bench: Bench) -> Iterator[Asked]:
    yield Asked()


@refused("MEMDOM-02")
def _no_roles(bench: Bench) -> Iterator[Asked]:
    yield Asked([bench.prepared(conv(bench.z))])


def _either(is_output: bool, models: Sequence[bytes], roles: Roles, dimensions: Sequence[int] = ()) -> Asked:
    return Asked(models, () if is_output else roles, roles if is_output else (), dimensions)


def _both_sides(input_id: str, output_id: str) -> Callable[[Callable[[Bench, bool], Iterator[Asked]]], None]:
    """Registers allocations for input roles, and the same for output roles."""

    def register(asking: Callable[[Bench, bool], Iterator[Asked]]) -> None:
        for id_, is_output in ((input_id, False), (output_id, True)):
            refused(id_)(lambda bench, is_output=is_output: asking(bench, is_output))  # type: ignore[misc]

    return register


@_both_sides("MEMDOM-03", "MEMDOM-04")
def _null_model(bench: Bench, is_output: bool) -> Iterator[Asked]:
    yield _either(is_output, [b""], [role(0, 0)])


@_both_sides("MEMDOM-05", "MEMDOM-06")
def _strange_model(bench: Bench, is_output: bool) -> Iterator[Asked]:
    yield _either(is_output, [STRANGER], [role(0, 0)])


@_both_sides("MEMDOM-07", "MEMDOM-08")
def _model_index(bench: Bench, is_output: bool) -> Iterator[Asked]:
    yield _either(is_output, [bench.prepared(conv(bench.z))], [role(1, 0)])


@_both_sides("MEMDOM-09", "MEMDOM-10")
def _io_index(bench: Bench, is_output: bool) -> Iterator[Asked]:
    yield _either(is_output, [bench.prepared(conv(bench.z))], [role(0, 1)])


@_both_sides("MEMDOM-11", "MEMDOM-12")
def _probability(bench: Bench, is_output: bool) -> Iterator[Asked]:
    model = bench.prepared(conv(bench.z))
    for probability in IMPOSSIBLE:
        yield _either(is_output, [model], [role(0, 0, probability)])


@_both_sides("MEMDOM-13", "MEMDOM-14")
def _role_twice(bench: Bench, is_output: bool) -> Iterator[Asked]:
    yield _either(is_output, [bench.prepared(conv(bench.z))], [role(0, 0), role(0, 0)])


@_both_sides("MEMDOM-15", "MEMDOM-16")
def _role_twice_by_two_indexes(bench: Bench, is_output: bool) -> Iterator[Asked]:
    model = bench.prepared(conv(bench.z))
    yield _either(is_output, [model, model], [role(0, 0), role(1, 0)])


def _conflicts(one: bytes, other: bytes) -> Iterator[Asked]:
    """The three sets of roles of two models."""
    models = [one, other]
    yield Asked(models, [role(0, 0), role(1, 0)])
    yield Asked(models, [role(0, 0)], [role(1, 0)])
    yield Asked(models, (), [role(0, 0), role(1, 0)])


@refused("MEMDOM-17")
def _types(bench: Bench) -> Iterator[Asked]:
    yield from _conflicts(bench.prepared(conv(bench.z)), bench.prepared(conv(bench.z.other_type)))


@refused("MEMDOM-18", QUANTISED)
def _scales(bench: Bench) -> Iterator[Asked]:
    yield from _conflicts(bench.prepared(conv(bench.z)), bench.prepared(conv(replace(bench.z, scale=1.0))))


@refused("MEMDOM-19", QUANTISED)
def _zero_points(bench: Bench) -> Iterator[Asked]:
    yield from _conflicts(bench.prepared(conv(bench.z)), bench.prepared(conv(replace(bench.z, zero_point=10))))


@refused("MEMDOM-20")
def _ranks(bench: Bench) -> Iterator[Asked]:
    lower = replace(bench.z, shape=bench.z.shape[:-1])
    yield from _conflicts(bench.prepared(add(bench.z)), bench.prepared(add(lower)))


@refused("MEMDOM-21")
def _dimensions(bench: Bench) -> Iterator[Asked]:
    longer = replace(bench.z, shape=(4, *bench.z.shape[1:]))
    yield from _conflicts(bench.prepared(conv(bench.z)), bench.prepared(conv(longer)))


def _descriptors(bench: Bench, dimensions: Sequence[int]) -> Iterator[Asked]:
    model = bench.prepared(conv(bench.z))
    for is_output in (False, True):
        yield _either(is_output, [model], [role(0, 0)], dimensions)


@refused("MEMDOM-22")
def _rank_of_descriptor(bench: Bench) -> Iterator[Asked]:
    yield from _descriptors(bench, bench.z.shape[:-1])


@refused("MEMDOM-23")
def _dimensions_of_descriptor(bench: Bench) -> Iterator[Asked]:
    yield from _descriptors(bench, (4, *bench.z.shape[1:]))


@refused("MEMDOM-24")
def _dimensions_of_a_scalar(bench: Bench) -> Iterator[Asked]:
    yield Asked([bench.prepared(add(bench.z))], [role(0, 2)], dimensions=[1])


@memdom("MEMDOM-25")
def valid_allocation(bench: Bench) -> None:
    """For an input, for an output, for both, of open shape, and with a descriptor that says what is open."""
    model, open_ = bench.prepared(conv(bench.z)), bench.prepared(conv(bench.z.open))
    bench.buffer([model], [role(0, 0)])
    bench.buffer([model], (), [role(0, 0)])
    bench.buffer([model], [role(0, 0)], [role(0, 0)])
    bench.buffer([open_], [role(0, 0)], [role(0, 0)])
    bench.buffer([open_], [role(0, 0)], [role(0, 0)], bench.z.shape)
    bench.buffer([model, open_], [role(0, 0), role(1, 0)], [role(0, 0, 0.5)])
