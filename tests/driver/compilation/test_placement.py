"""Placement: the backend of each operation, the partitions, and what happens when a backend fails to compile."""

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnhal.errors import HalError, missed_deadline
from nnhal.types import (
    AnyArray,
    DataLocation,
    ErrorStatus,
    ExtensionNameAndPrefix,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Placement,
    Subgraph,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import Backend, CompiledSubgraph, CompileOptions, OperationView, SubgraphView, Support
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.compilation.cost import PARTITION_COST, estimate_work
from nnhal_driver.compilation.partitioning import DataFlow, Partitioner
from nnhal_driver.compilation.placement import explain_refusal, place
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from nnhal_driver.graph import Graph, build_graphs
from nnhal_driver.preparation.launch import GivenModel
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.control_flow_models import adds_one, choose, counts, less_than, loop
from tests.driver.fake_backend import BINARY, LARGE, SMALL, Fake, device_of, graph_of, parts
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import Value, execute, int32, model_of, prepare, tensor


def place_on(model: Model, *backends: Backend) -> Placement:
    return place(build_graphs(model), backends)


# ---- Partitions -----------------------------------------------------------------------------------------


def test_operations_are_joined_across_those_of_another_backend() -> None:
    """0 and 3 do not depend on 1, which stands between them in the model's order, nor on 2."""
    model = graph_of([(-1, -1), (0, 0), (1, 1), (0, 0)], [Op.ADD, Op.MAXIMUM, Op.MAXIMUM, Op.ADD], LARGE)
    assert parts(place_on(model, Fake("A", [Op.ADD]), CpuRef())) == [("A", (0, 3)), ("CpuRef", (1, 2))]


def test_operations_are_not_joined_where_that_would_make_a_cycle() -> None:
    """2 needs 1, which needs 0: A cannot run 0 and 2 as a unit."""
    model = graph_of([(-1, -1), (0, 0), (0, 1)], [Op.ADD, Op.MAXIMUM, Op.ADD], LARGE)
    assert parts(place_on(model, Fake("A", [Op.ADD]), CpuRef())) == [("A", (0,)), ("CpuRef", (1,)), ("A", (2,))]


@pytest.mark.parametrize("disabled", [(), ("org.nnhal.litert",)])
def test_refusals_name_operations_of_extensions(disabled: tuple[str, ...]) -> None:
    model = graph_of([(-1, -1), (0, 0)], [Op.ADD, Op.ADD], LARGE)
    numbers = 1 << 16, 2 << 16 | 3
    operations = [replace(each, type=number) for each, number in zip(model.main.operations, numbers, strict=True)]
    names = (ExtensionNameAndPrefix("org.nnhal.litert", 1), ExtensionNameAndPrefix("com.vendor.x", 2))
    model = replace(model, main=replace(model.main, operations=tuple(operations)), extension_name_to_prefix=names)
    graphs = build_graphs(model, disabled)
    placed = place(graphs, [CpuRef()]).operations
    assert [explain_refusal(graphs, each) for each in placed] == [
        "operation 0 of main (SUBMODEL of org.nnhal.litert) is not supported: "
        "CpuRef: SUBMODEL of org.nnhal.litert has no kernel",
        "operation 1 of main (operation 3 of com.vendor.x) is not supported: "
        "CpuRef: operation 3 of com.vendor.x has no kernel",
    ]
    assert [graphs[0].extension(each.type) for each in operations] == ["" if disabled else names[0].name, names[1].name]


def test_operation_runs_when_its_output_is_needed() -> None:
    """2 could run first, but only 3 reads its output, and 3 waits for CpuRef."""
    model = graph_of([(-1, -1), (0, 0), (-1, -1), (1, 2)], [Op.ADD, Op.MAXIMUM, Op.ADD, Op.ADD], LARGE)
    assert parts(place_on(model, Fake("A", numbers=[0]), Fake("B", [Op.ADD]), CpuRef())) == [
        ("A", (0,)),
        ("CpuRef", (1,)),
        ("B", (2, 3)),
    ]


def test_operations_that_exchange_no_values_are_not_joined() -> None:
    """A constant that both read does not connect them."""
    x = tensor(T.TENSOR_FLOAT32, (2,))
    model = model_of(Op.ADD, [(x, 0), (x, 0), int32(0)], [x], constants=False)
    operands = [*model.main.operands, *(_copy_of(o) for o in (*model.main.operands[:2], model.main.operands[3]))]
    operations = (*model.main.operations, Operation(Op.ADD, (4, 5, 2), (6,)))
    both = Model(Subgraph(tuple(operands), operations, (0, 1, 4, 5), (3, 6)), operand_values=model.operand_values)
    assert parts(place_on(both, CpuRef())) == [("CpuRef", (0,)), ("CpuRef", (1,))]


def _copy_of(operand: Operand) -> Operand:
    return Operand(operand.type, operand.dimensions, lifetime=operand.lifetime)


@dataclass(frozen=True)
class Case:
    model: Model
    supports: tuple[tuple[int, ...], ...]
    """For each backend except CpuRef, the operations that it supports."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    count = draw(st.integers(2, 12))
    source = [(draw(st.integers(-1, i - 1)), draw(st.integers(-1, i - 1))) for i in range(count)]
    types = [draw(st.sampled_from(BINARY)) for _ in range(count)]
    takes = st.lists(st.integers(0, count - 1), unique=True, max_size=count).map(tuple)
    model = graph_of(source, types, draw(st.sampled_from([SMALL, LARGE])))
    return Case(model, tuple(draw(st.lists(takes, min_size=1, max_size=2))))


def backends_of(case: Case) -> list[Backend]:
    return [*(Fake(f"B{i}", numbers=numbers) for i, numbers in enumerate(case.supports)), CpuRef()]


def partition_numbers(placement: Placement) -> dict[int, int]:
    """Return for each operation the number of its partition, in order of execution."""
    return {i: number for number, (_, operations) in enumerate(parts(placement)) for i in operations}


@settings(max_examples=200, deadline=None)
@given(cases())
def test_partitions_cover_everything_once_and_run_in_order(case: Case) -> None:
    placement = place_on(case.model, *backends_of(case))
    count = len(case.model.main.operations)
    assert sorted(i for _, operations in parts(placement) for i in operations) == list(range(count))
    number_of = partition_numbers(placement)
    graph = build_graphs(case.model)[0]
    for i, sources in enumerate(DataFlow(graph).sources):
        assert all(number_of[source] <= number_of[i] for source in sources)
    for backend, operations in parts(placement):
        assert list(operations) == sorted(operations)
        assert {placement.operations[i].backend for i in operations} == {backend}
        supporters = [
            backend.id
            for backend in backends_of(case)
            if all(backend.supports(graph.operations[i]) for i in operations)
        ]
        assert backend in supporters
        assert _is_connected(graph, operations)


def _is_connected(graph: Graph, operations: Sequence[int]) -> bool:
    used = {
        i: {o for o in (*graph.operations[i].operation.inputs, *graph.operations[i].operation.outputs) if o != 1}
        for i in operations
    }
    reached, queue = {operations[0]}, deque(operations[:1])
    while queue:
        current = queue.popleft()
        new = {i for i in operations if i not in reached and not used[i].isdisjoint(used[current])}
        reached |= new
        queue += new
    return reached == set(operations)


@settings(max_examples=200, deadline=None)
@given(cases())
def test_no_two_partitions_of_one_backend_could_be_joined(case: Case) -> None:
    """This holds for partitions that exchange values, before any is merged with its neighbors."""
    graph = build_graphs(case.model)[0]
    takes = [set(numbers) for numbers in case.supports]
    labels = [next((n for n, t in enumerate(takes) if i in t), len(takes)) for i in range(len(graph.operations))]
    flow = DataFlow(graph)
    partitions = Partitioner(flow, labels).in_order()
    number_of = {i: number for number, members in enumerate(partitions) for i in members}
    edges = {
        (number_of[s], number_of[i])
        for i, sources in enumerate(flow.sources)
        for s in sources
        if number_of[s] != number_of[i]
    }
    for a, b in combinations(range(len(partitions)), 2):
        if labels[partitions[a][0]] == labels[partitions[b][0]] and (a, b) in edges:
            assert _has_cycle({(a if s == b else s, a if t == b else t) for s, t in edges})


def _has_cycle(edges: set[tuple[int, int]]) -> bool:
    edges = {(a, b) for a, b in edges if a != b}
    while edges:
        waiting = {b for _, b in edges}
        rest = {(a, b) for a, b in edges if a in waiting}
        if rest == edges:
            return True
        edges = rest
    return False


@settings(max_examples=100, deadline=None)
@given(cases())
def test_plan_of_many_partitions_computes_the_same_as_one(case: Case) -> None:
    x = np.random.default_rng(1).integers(-3, 4, case.model.main.operands[0].dimensions).astype(np.float32)
    with device_of(*backends_of(case)) as mixed, device_of(CpuRef()) as plain, np.errstate(all="ignore"):
        actual, expected = (execute(prepare(case.model, device), [x])[1] for device in (mixed, plain))
    for output, reference in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(output, reference)


def test_long_model_is_partitioned_in_linear_time() -> None:
    """The model has 10,000 operations on alternating backends. The backend is asked about each once."""
    count = 10_000
    model = graph_of([(i - 1, max(-1, i - 7)) for i in range(count)], [BINARY[i % 5] for i in range(count)], LARGE)
    fake = Fake("A", [Op.ADD, Op.MAXIMUM])
    placement = place_on(model, fake, CpuRef())
    assert len(fake.asked) == count
    assert sum(len(operations) for _, operations in parts(placement)) == count
    number_of = partition_numbers(placement)
    assert all(number_of[i] <= number_of[i + 1] for i in range(count - 1))


def test_search_ends_after_a_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions of the first pass over the graph can still run."""
    monkeypatch.setattr("nnhal_driver.compilation.partitioning._STEPS_PER_OPERATION", 0)
    monkeypatch.setattr("nnhal_driver.compilation.partitioning._MIN_STEPS", 0)
    model = graph_of([(-1, -1), (0, 0), (-1, -1), (1, 2)], [Op.ADD, Op.MAXIMUM, Op.ADD, Op.ADD], LARGE)
    placement = place_on(model, Fake("A", numbers=[0]), Fake("B", [Op.ADD]), CpuRef())
    assert parts(placement) == [("A", (0,)), ("B", (2,)), ("CpuRef", (1,)), ("B", (3,))]


def test_long_model_of_small_operations_becomes_one_partition() -> None:
    count = 8_000
    model = graph_of([(i - 1, -1) for i in range(count)], [(Op.ADD, Op.MAXIMUM)[i % 2] for i in range(count)])
    assert parts(place_on(model, Fake("A", [Op.ADD]), CpuRef())) == [("CpuRef", tuple(range(count)))]


# ---- Merging --------------------------------------------------------------------------------------------

ISLAND = graph_of([(-1, -1), (0, 0), (1, 1), (2, 2)], [Op.MAXIMUM, Op.ADD, Op.ADD, Op.MAXIMUM])


def test_unprofitable_partition_is_merged_with_a_reason() -> None:
    placement = place_on(ISLAND, Fake("A", [Op.ADD]), CpuRef())
    assert parts(placement) == [("CpuRef", (0, 1, 2, 3))]
    (refusal,) = placement.operations[1].refusals
    assert refusal.backend == "A"
    assert refusal.reason.startswith("merged: 2 operations do not pay for a partition (worth 64,0")
    assert placement.operations[0].refusals[0].reason == "not mine"


def test_merging_can_be_forbidden() -> None:
    placement = place(build_graphs(ISLAND), [Fake("A", [Op.ADD]), CpuRef()], merge=False)
    assert parts(placement) == [("CpuRef", (0,)), ("A", (1, 2)), ("CpuRef", (3,))]
    assert not placement.operations[1].refusals


def test_device_that_forbids_merging_explains_and_prepares_alike() -> None:
    device = Device("test", [Fake("A", [Op.ADD]), CpuRef()], DeviceOptions(merge_partitions=False))
    expected = [("CpuRef", (0,)), ("A", (1, 2)), ("CpuRef", (3,))]
    assert parts(device.get_supported_operations(GivenModel(ISLAND))[1]) == expected
    assert parts(prepare(ISLAND, device).placement) == expected
    device.close()


def test_partition_with_much_work_is_not_merged() -> None:
    model = graph_of([(-1, -1), (0, 0), (1, 1), (2, 2)], [Op.MAXIMUM, Op.ADD, Op.ADD, Op.MAXIMUM], LARGE)
    assert parts(place_on(model, Fake("A", [Op.ADD]), CpuRef())) == [("CpuRef", (0,)), ("A", (1, 2)), ("CpuRef", (3,))]


def test_four_small_operations_pay_for_a_partition() -> None:
    model = graph_of([(i - 1, i - 1) for i in range(6)], [Op.MAXIMUM, *[Op.ADD] * 4, Op.MAXIMUM])
    assert parts(place_on(model, Fake("A", [Op.ADD]), CpuRef()))[1] == ("A", (1, 2, 3, 4))


def test_partition_stays_if_the_neighbor_does_not_support_it() -> None:
    placement = place_on(ISLAND, Fake("A", [Op.ADD]), Fake("B", [Op.MAXIMUM]), CpuRef())
    assert parts(placement) == [("B", (0,)), ("A", (1, 2)), ("B", (3,))]


def test_partition_without_neighbors_stays() -> None:
    assert parts(place_on(graph_of([(-1, -1)], [Op.ADD]), Fake("A", [Op.ADD]), CpuRef())) == [("A", (0,))]


def test_each_backend_passed_over_has_its_own_reason() -> None:
    """B comes between A and CpuRef, and supports half of the partition."""
    placement = place_on(ISLAND, Fake("A", [Op.ADD]), Fake("B", numbers=[1]), CpuRef())
    first, second = placement.operations[1:3]
    assert [(r.backend, r.reason[:6]) for r in first.refusals] == [("A", "merged"), ("B", "merged")]
    assert [(r.backend, r.reason[:6]) for r in second.refusals] == [("A", "merged"), ("B", "not mi")]


def test_partition_with_unknown_shapes_is_not_merged() -> None:
    model = graph_of([(-1, -1), (0, 0), (1, 1)], [Op.MAXIMUM, Op.ADD, Op.MAXIMUM], (0,))
    assert parts(place_on(model, Fake("A", [Op.ADD]), CpuRef()))[1] == ("A", (1,))


@pytest.mark.parametrize(
    ("type_", "inputs", "output", "expected"),
    [
        (Op.ADD, [(2, 3), (3,)], (2, 3), 6 + 3 + 6),
        (Op.FULLY_CONNECTED, [(5, 7), (11, 7), (11,)], (5, 11), 5 * 11 * 7),
        (Op.CONV_2D, [(1, 8, 8, 3), (16, 3, 5, 3), (16,)], (1, 6, 4, 16), 6 * 4 * 16 * 3 * 5 * 3),
        (Op.DEPTHWISE_CONV_2D, [(1, 8, 8, 4), (1, 3, 5, 4), (4,)], (1, 6, 4, 4), 6 * 4 * 4 * 3 * 5),
        (Op.TRANSPOSE_CONV_2D, [(1, 2, 2, 3), (4, 3, 3, 3), (4,)], (1, 4, 4, 4), 2 * 2 * 3 * 4 * 3 * 3),
        (Op.BATCH_MATMUL, [(6, 2, 3), (6, 3, 5)], (6, 2, 5), 6 * 2 * 3 * 5),
        (Op.MUL, [(2, 0), (1,)], (2, 0), None),
    ],
)
def test_estimated_work(
    type_: Op, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...], expected: int | None
) -> None:
    scalars: dict[Op, Sequence[Value]] = {
        Op.ADD: [int32(0)],
        Op.MUL: [int32(0)],
        Op.FULLY_CONNECTED: [int32(0)],
        Op.CONV_2D: [int32(2), int32(1), int32(1), int32(0)],
        Op.DEPTHWISE_CONV_2D: [int32(2), int32(1), int32(1), int32(1), int32(0)],
        Op.TRANSPOSE_CONV_2D: [
            (tensor(T.TENSOR_INT32, (4,)), [1, 4, 4, 4]),
            int32(1),
            int32(2),
            int32(2),
            int32(0),
            (Operand(T.BOOL), False),
        ],
        Op.BATCH_MATMUL: [(Operand(T.BOOL), False), (Operand(T.BOOL), False)],
    }
    tensors = [(tensor(T.TENSOR_FLOAT32, shape), np.zeros(shape)) for shape in inputs]
    model = model_of(type_, [*tensors, *scalars[type_]], [tensor(T.TENSOR_FLOAT32, output)], constants=False)
    assert estimate_work(build_graphs(model)[0].operations[0]) == expected


def test_copies_can_cost_more_than_an_operation_saves() -> None:
    """All values of the operation cross the boundary."""
    model = graph_of([(-1, -1), (0, 0), (1, 1)], [Op.MAXIMUM, Op.ADD, Op.MAXIMUM], (170, 170))
    assert parts(place_on(model, Fake("A", [Op.ADD]), CpuRef())) == [("CpuRef", (0, 1, 2))]
    assert estimate_work(build_graphs(model)[0].operations[1]) == 3 * 170 * 170 < PARTITION_COST


# ---- Failures -------------------------------------------------------------------------------------------


def run_on(model: Model, *backends: Backend) -> tuple[Placement, list[AnyArray]]:
    with device_of(*backends) as device:
        outcome = prepare(model, device)
        assert outcome.prepared_model is not None, outcome.reason
        assert outcome.placement == outcome.prepared_model.placement
        x = np.ones(model.main.operands[0].dimensions, np.float32)
        return outcome.placement, execute(outcome, [x])[1]


CHAIN = graph_of([(i - 1, i - 1) for i in range(9)], [*[Op.ADD] * 4, Op.MAXIMUM, *[Op.ADD] * 4])


@pytest.mark.parametrize("error", [RuntimeError("out of luck"), HalError(3, "out of luck"), MemoryError("out of luck")])
def test_partition_that_fails_to_compile_is_placed_again(error: Exception) -> None:
    broken = Fake("A", [Op.ADD], fails=error, fails_on=[5])
    placement, outputs = run_on(CHAIN, broken, CpuRef())
    assert parts(placement) == [("A", (0, 1, 2, 3)), ("CpuRef", (4, 5, 6, 7, 8))]
    assert broken.compiled == [(0, 1, 2, 3)], "the rest is not compiled again"
    refusals = [operation.refusals for operation in placement.operations]
    assert refusals[0] == ()
    assert all("failed to compile" in r[0].reason and "out of luck" in r[0].reason for r in refusals[5:])
    np.testing.assert_array_equal(outputs[0], np.full(2, 256, np.float32))


def test_backends_are_tried_in_order() -> None:
    first, second = Fake("A", fails=RuntimeError("no")), Fake("B", fails=ValueError("neither"))
    placement, _ = run_on(CHAIN, first, second, CpuRef())
    assert parts(placement) == [("CpuRef", tuple(range(9)))]
    assert [r.backend for r in placement.operations[0].refusals] == ["A", "B"]


def test_preparation_fails_if_all_backends_fail() -> None:
    with device_of(Fake("A", fails=RuntimeError("no luck")), Fake("B", fails=HalError(2, "no chance"))) as device:
        outcome = prepare(CHAIN, device)
    assert outcome.status == ErrorStatus.GENERAL_FAILURE
    assert "operation 0 of main (ADD)" in outcome.reason
    failed = "A: it failed to compile this: backend A failed in compile: RuntimeError: no luck"
    assert f"{failed}; B: it failed to compile this: no chance" in outcome.reason


def test_preparation_fails_if_memory_runs_out_twice() -> None:
    with device_of(Fake("A", fails=MemoryError("10 GB")), Fake("B", fails=MemoryError("9 GB")), CpuRef()) as device:
        outcome = prepare(CHAIN, device)
    assert outcome.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert "9 GB" in outcome.reason


def test_preparation_fails_if_the_last_backend_runs_out_of_memory() -> None:
    with device_of(Fake("A", fails=MemoryError("10 GB"))) as device:
        assert prepare(CHAIN, device).status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT


def test_missed_deadline_that_was_not_missed_is_a_failure_of_the_backend() -> None:
    with device_of(Fake("A", fails=missed_deadline("too late")), CpuRef()) as device:
        outcome = prepare(CHAIN, device)
    assert outcome.status == ErrorStatus.NONE and outcome.placement is not None
    reasons = {refusal.reason for operation in outcome.placement.operations for refusal in operation.refusals}
    reason = "backend A: compile reports a missed deadline that was not missed: too late"
    assert reasons == {f"it failed to compile this: {reason}"}


def test_cancellation_between_partitions_is_not_a_failure_of_the_backend() -> None:
    proceed, compiling = threading.Event(), threading.Event()

    class Slow(Fake):
        def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
            compiling.set()
            assert proceed.wait(60)
            return super().compile(subgraph, options)

    slow = Slow("A", [Op.ADD])
    outcomes: list[Outcome] = []
    with device_of(slow, CpuRef()) as device:
        cancellation = launch_preparation(device, CHAIN, outcomes.append)
        assert compiling.wait(60)
        cancellation.cancel()
        proceed.set()
    assert [(o.status, o.reason) for o in outcomes] == [(ErrorStatus.GENERAL_FAILURE, "cancelled by the client")]
    assert len(slow.compiled) == 1


def test_backend_that_fails_to_answer_does_not_support_the_operation(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Fake):
        def supports(self, operation: OperationView) -> Support:
            raise KeyError("what?")

    placement, _ = run_on(CHAIN, Failing("A"), CpuRef())
    assert parts(placement) == [("CpuRef", tuple(range(9)))]
    assert "KeyError: 'what?'" in placement.operations[0].refusals[0].reason


# ---- Control flow ---------------------------------------------------------------------------------------


def test_referenced_subgraphs_are_placed_like_main() -> None:
    """Condition and body become one partition each, on the first backend that supports them."""
    model = loop(less_than(), counts())
    placement = place_on(model, Fake("A", [Op.ADD]), CpuRef())
    assert [(p.subgraph, p.backend) for p in placement.partitions] == [(0, "driver"), (1, "CpuRef"), (2, "A")]


def test_branch_that_fails_to_compile_is_placed_again() -> None:
    model = choose(adds_one(), adds_one())
    with device_of(Fake("A", fails=RuntimeError("no")), CpuRef()) as device:
        outcome = prepare(model, device)
    assert [(p.subgraph, p.backend) for p in outcome.placement.partitions] == [
        (0, "driver"),
        (1, "CpuRef"),
        (2, "CpuRef"),
    ]
    assert execute(outcome, [np.array([True]), np.ones(1, np.float32)])[1][0] == 2


def test_control_flow_is_never_joined_with_its_neighbors() -> None:
    model = choose(adds_one(), adds_one())
    placement = place_on(model, CpuRef())
    assert parts(placement) == [("driver", (0,))]


def test_unsupported_operation_in_a_nested_subgraph_is_named_once() -> None:
    """The reason does not grow with the nesting."""
    depth = 40
    referenced = [*(_calls(i + 1) for i in range(depth)), adds_one(type_=0x10001)]
    model = Model(_calls(0), tuple(referenced), operand_values=choose(adds_one(), adds_one()).operand_values)
    placement = place_on(model, CpuRef())
    reason = placement.operations[0].refusals[0].reason
    assert f"operation 0 of referenced subgraph {depth}" in reason
    assert len(reason) < 200


def _calls(number: int) -> Subgraph:
    """Return (condition, x) -> IF(condition, x); both branches are referenced[number]."""
    last = number == 40
    types = [T.TENSOR_BOOL8, T.SUBGRAPH, T.SUBGRAPH, T.TENSOR_FLOAT32, T.TENSOR_FLOAT32]
    lifetimes = [
        OperandLifeTime.SUBGRAPH_INPUT,
        OperandLifeTime.SUBGRAPH,
        OperandLifeTime.SUBGRAPH,
        OperandLifeTime.SUBGRAPH_INPUT,
        OperandLifeTime.SUBGRAPH_OUTPUT,
    ]
    operands = tuple(
        Operand(
            t,
            () if t == T.SUBGRAPH else (1,),
            lifetime=life,
            location=DataLocation(0, number, 0) if t == T.SUBGRAPH else DataLocation(),
        )
        for t, life in zip(types, lifetimes, strict=True)
    )
    inputs = (0, 1, 2, 3) if last else (0, 1, 2, 0, 3)
    return Subgraph(operands, (Operation(Op.IF, inputs, (4,)),), (0, 3), (4,))
